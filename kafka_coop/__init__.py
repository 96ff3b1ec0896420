"""A Kafka consumer whose group membership is its own.

The public names are imported on first use: `import kafka_coop` costs next to nothing, and
the pure layers can be used without librdkafka.
"""
