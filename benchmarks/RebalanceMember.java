import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One Java member of the rebalance benchmarks: RebalanceMember BOOTSTRAP GROUP TOPIC LOG [wait]
 * [stay] [KEY=VALUE…]. It logs, and is told what to do, as benchmarks/rebalance_member.py describes.
 *
 * With "wait" its JVM is warm before the log is there: a consumer in a group of its own has joined,
 * has read a record and has left, so that all classes that a member needs are loaded.
 */
public final class RebalanceMember implements ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long SECOND = 1_000_000_000L;

    private final FileOutputStream log;
    private final KafkaConsumer<byte[], byte[]> consumer;

    private volatile boolean stopped;

    private RebalanceMember(String path, Properties config) throws IOException {
        log = new FileOutputStream(path);
        consumer = new KafkaConsumer<>(config);
    }

    public static void main(String[] arguments) throws IOException {
        String group = arguments[1];
        String topic = arguments[2];
        String path = arguments[3];
        List<String> options = List.of(arguments).subList(4, arguments.length);
        Properties config = configuration(arguments[0], group, options);
        if (options.contains("wait")) {
            warmUp(path + ".warm-up", topic, config);
            new FileOutputStream(path).close();
            if (System.in.read() < 0) {
                return;
            }
        }
        new RebalanceMember(path, config).runUntilTerminated(topic, options.contains("stay"));
    }

    private static Properties configuration(String bootstrap, String group, List<String> options) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("auto.offset.reset", "latest");
        config.put("session.timeout.ms", "6000");
        config.put("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        for (String option : options) {
            if (option.contains("=")) {
                String[] pair = option.split("=", 2);
                config.put(pair[0], pair[1]);
            }
        }
        return config;
    }

    private static void warmUp(String path, String topic, Properties config) throws IOException {
        Properties own = new Properties();
        own.putAll(config);
        own.put("group.id", config.get("group.id") + "-warm-up-" + ProcessHandle.current().pid());
        RebalanceMember member = new RebalanceMember(path, own);
        member.consumer.subscribe(List.of(topic), member);
        while (!member.deliver()) { }
        member.noteGeneration();
        member.consumer.close();
    }

    private void runUntilTerminated(String topic, boolean stays) throws IOException {
        CountDownLatch closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopped = true;
            try {
                closed.await();
            } catch (InterruptedException ended) {
                // the same
            }
        }));
        try {
            run(topic);
            while (stays && System.in.read() >= 0) { }
        } finally {
            closed.countDown();
        }
    }

    private void run(String topic) {
        consumer.subscribe(List.of(topic), this);
        long due = System.nanoTime();
        while (!stopped) {
            deliver();
            if (System.nanoTime() - due >= 0) {
                noteGeneration();
                due = System.nanoTime() + SECOND;
            }
        }
        consumer.close();
    }

    private boolean deliver() {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
        long now = now();
        StringBuilder lines = new StringBuilder();
        for (ConsumerRecord<byte[], byte[]> r : records) {
            lines.append(now).append(" r ").append(r.partition()).append(' ').append(r.offset())
                .append(' ').append(r.timestamp()).append('\n');
        }
        write(lines.toString());
        return !records.isEmpty();
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        told("+", partitions);
    }

    /** Lost partitions come here, too. */
    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        told("-", partitions);
    }

    private void told(String kind, Collection<TopicPartition> partitions) {
        noteGeneration();
        note(kind, partitions.stream().map(TopicPartition::partition).map(String::valueOf)
            .collect(Collectors.joining(",")));
    }

    private void noteGeneration() {
        int generation = consumer.groupMetadata().generationId();
        if (generation >= 0) {
            note("g", String.valueOf(generation));
        }
    }

    private void note(String kind, String rest) {
        write(now() + " " + kind + " " + rest + "\n");
    }

    private static long now() {
        Instant now = Instant.now();
        return now.getEpochSecond() * SECOND + now.getNano();
    }

    private void write(String text) {
        try {
            log.write(text.getBytes(StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }
}
