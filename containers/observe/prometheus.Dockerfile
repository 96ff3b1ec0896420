# The stand-in for prom/prometheus; built by containers/build-observe.sh.
ARG BASE
FROM ${BASE}
COPY prometheus /bin/prometheus
RUN mkdir /prometheus && chown nobody /prometheus
USER nobody
EXPOSE 9090
ENTRYPOINT ["/bin/prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
