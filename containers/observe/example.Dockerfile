# The stand-in for examples/Dockerfile; built by containers/build-observe.sh.
ARG BASE
FROM ${BASE}
WORKDIR /app
RUN ln -s /usr/bin/python3 /usr/local/bin/python
COPY site site
COPY examples examples
ENV PYTHONPATH=/app/site
USER nobody
CMD ["python", "examples/observed_service.py"]
