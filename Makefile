# Needs make and Python 3.11+; everything else comes from package registries.
#   make demo    a living group on real data, under two minutes
#   make test    lint, types, layers, and all tests but the slow ones; CI runs versions, three,
#                containers and a part of spark-versions, too
#   make slow    the tests that CI leaves out for their length (docs/BROKERS.md names them)
#   make bench   the figures of docs/BENCHMARKS.md
#   make soak    SEEDS random schedules of a simulated group (a million: hours)
#   make fuzz    INPUTS damaged bytes for every decoder (ten million: some minutes)
#   make audit   known vulnerabilities of everything in locks/ (AUDIT=osv: by OSV's service;
#                ADVISORIES=FOLDER: by a checkout of PyPA's advisory database, and by no service)
#   make garbage a million members' damaged subscriptions, each led and checked
#   make observe a living group with Prometheus and Grafana; make chaos joins and kills members
#                (SERVICES="orders prometheus" leaves Grafana out, where its image can't be had)
#   make flights two topics joined on Spark by one query, then three, then one; compared with pandas
#   make spark-versions  the Spark tests on the PySpark minor release before the locked one
#   make versions  members' tests on RELEASES of Kafka, the oldest supported one among them
#   make three   members' tests on three brokers instead of one
#   make containers  the tests that need Docker, and members' tests on Kafka's image, which comes from
#                a registry or is built here
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
  "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
JOBS   ?= 2
# Of the tests: they wait for brokers more than they compute.
WORKERS ?= 4
SEEDS  ?= 1000000
INPUTS ?= 10000000
AUDIT  ?= pypi
RELEASES ?= 1.0.2 3.9.1 4.4.0
# The newest release of the minor before the one in locks/dev.txt.
PYSPARK ?= 4.2.1
SPARK_TESTS ?= tests/spark
BIN    := .venv/bin
# Version 1 of docker-compose gives up on a busy machine's Docker after a minute.
export COMPOSE_HTTP_TIMEOUT ?= 300
COMPOSE = $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)

.PHONY: demo test lint unit again forgivable three versions slow bench soak fuzz audit mutations observe chaos screens flights lock garbage containers spark-versions clean

demo: .venv/.demo
	@$(BIN)/python -m kafka_coop.demo

test: lint unit

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	for conftest in tests/*/conftest.py; do $(BIN)/mypy $$conftest || exit 1; done
	$(BIN)/lint-imports
	$(BIN)/python -m grafana --check

# Trials are judged by the clock: nothing else runs beside them. Whatever fails, both parts run.
unit: .venv/.dev
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup -m "not alone"; first=$$?; \
	  $(BIN)/pytest -m alone || exit; exit $$first

# What failed in the last run, once more and one by one: a test that starts processes and brokers
# may run out of its patience on a busy machine. What fails twice, fails.
again: lint
	$(BIN)/python tests/failed_again.py

# Whether a whole run may be repeated: not where a verdict failed in it.
forgivable: .venv/.dev
	$(BIN)/python tests/failed_again.py --ask

# What members do, whoever started the brokers: `make test` has one of the jars, and the embedded one.
# (-m real_kafka: those with a broker of their own, for its settings, stay out).
MEMBERS = tests/integration

three: .venv/.dev
	$(BIN)/pytest --kafka=local-3 -n $(WORKERS) -m real_kafka $(MEMBERS)

versions: .venv/.dev
	for release in $(RELEASES); do echo "== Kafka $$release"; \
	  $(BIN)/pytest --kafka-version=$$release -n $(WORKERS) -m real_kafka $(MEMBERS) || exit 1; done

# One by one: a trial has real processes, and a broker of its own, or three.
slow: .venv/.dev
	$(BIN)/pytest --slow -m slow -n 0

# Images that are neither here nor in a registry within reach are built from Debian, Maven, PyPI.
containers: .venv/.dev
	docker image inspect apache/kafka:4.1.0 >/dev/null 2>&1 || timeout 120 docker pull -q apache/kafka:4.1.0 || \
	  PYTHON=$(BIN)/python containers/build-image.sh
	UV=$(BIN)/uv containers/build-observe.sh
	KAFKA_COOP_DOCKER=1 $(BIN)/pytest --kafka=container -m "docker or real_kafka" \
	  tests/testing/test_shared_kafka.py tests/observe/test_observe_compose.py \
	  tests/observe/test_observe_living.py $(MEMBERS)

# In an environment of its own, and one test after the other: a session takes all cores to start.
# Of its own are that PySpark and what it alone needs; all else is .venv's, whose PySpark is not seen.
spark-versions: build/pyspark-$(PYSPARK)/.made
	build/pyspark-$(PYSPARK)/bin/python -c 'import pyspark; print("PySpark", pyspark.__version__)' | \
	  grep -Fx "PySpark $(PYSPARK)"
	build/pyspark-$(PYSPARK)/bin/python -m pytest $(SPARK_TESTS)

PACKAGES = python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'

build/pyspark-$(PYSPARK)/.made: .venv/.dev
	$(BIN)/uv venv -q --clear -p $(BIN)/python build/pyspark-$(PYSPARK)
	$(BIN)/uv pip install -q --compile-bytecode -p build/pyspark-$(PYSPARK)/bin/python pyspark==$(PYSPARK)
	echo "import site; site.addsitedir('$$($(BIN)/$(PACKAGES))')" > \
	  "$$(build/pyspark-$(PYSPARK)/bin/$(PACKAGES))/all_else.pth"
	@touch $@

bench: .venv/.dev
	$(BIN)/python -m benchmarks

soak: .venv/.dev
	$(BIN)/kafka-coop simulate check --seeds $(SEEDS) --jobs $(JOBS) --coverage

fuzz: .venv/.dev
	$(BIN)/python tests/protocol/protocol_fuzz.py --inputs $(INPUTS) --jobs $(JOBS)

# --strict: what can't be looked up fails, too. An audit that asked nobody is none.
ifdef ADVISORIES
audit: .venv/.dev
	$(BIN)/python tests/security/advisories.py $(ADVISORIES)
else
audit: .venv/.uv
	for lock in locks/*.txt; do $(BIN)/uv tool run pip-audit==2.10.1 --strict --disable-pip \
	  --require-hashes --vulnerability-service $(AUDIT) -r $$lock || exit 1; done
endif

garbage: .venv/.dev
	$(BIN)/python tests/leader/garbage.py

mutations: .venv/.dev
	$(BIN)/python tests/simulation/mutations/mutate.py --jobs $(JOBS)

observe: containers/secrets/broker.pem
	$(COMPOSE) -f docker-compose.yml -f docker-compose.observe.yml up $(SERVICES)

# Without them no broker starts: its TLS listener has nothing to show.
containers/secrets/broker.pem: containers/secrets.sh
	containers/secrets.sh

chaos:
	examples/chaos.sh

screens: .venv/.dev
	$(BIN)/python docs/screens/capture.py

# A month of 2013; DAYS=3 is done sooner. It writes build/delays.svg and .csv.
flights: .venv/.dev
	@mkdir -p build
	$(BIN)/python -m examples.flight_delays --picture build/delays.svg $(if $(DAYS),--days $(DAYS))

lock: .venv/.uv
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
	  --no-emit-index-url --group demo --extra cli pyproject.toml -o locks/demo.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
	  --no-emit-index-url --group dev --all-extras pyproject.toml -o locks/dev.txt

clean:
	rm -rf .venv

.venv/.uv:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: install it, or set PYTHON"; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "Debian: apt-get install python3-venv"; exit 1; }
	@$(BIN)/pip install -q --disable-pip-version-check uv==0.13.8
	@touch $@

# Compiled at once: where Python writes no bytecode (PYTHONDONTWRITEBYTECODE), each process of a test
# or a benchmark would else compile all that it imports, for half a second and just when it is needed.
.venv/.demo: .venv/.uv locks/demo.txt pyproject.toml
	@test -f .venv/.dev || $(BIN)/uv pip install -q --compile-bytecode -p $(BIN)/python --require-hashes -r locks/demo.txt
	@$(BIN)/uv pip install -q -p $(BIN)/python --no-deps -e .
	@$(BIN)/python -m compileall -q kafka_coop
	@touch $@

.venv/.dev: .venv/.uv locks/dev.txt pyproject.toml
	@$(BIN)/uv pip install -q --compile-bytecode -p $(BIN)/python --require-hashes -r locks/dev.txt
	@$(BIN)/uv pip install -q -p $(BIN)/python --no-deps -e .
	@$(BIN)/python -m compileall -q kafka_coop
	@touch $@
