"""Makes the SCRAM user of docker-compose.yml, once its brokers are up: alice, alice-secret."""

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

ITERATIONS = 4096  # the least that Kafka allows

admin = AdminClient(
    {"bootstrap.servers": "localhost:19092,localhost:29092,localhost:32092", "log_level": 0}
)
for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
    upsertion = UserScramCredentialUpsertion(
        "alice", ScramCredentialInfo(mechanism, ITERATIONS), b"alice-secret"
    )
    for user, done in admin.alter_user_scram_credentials([upsertion]).items():
        done.result(30)
        print(f"{user}: {mechanism.name}")
