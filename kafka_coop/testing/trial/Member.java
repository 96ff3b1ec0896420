import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

/**
 * One Java member of a trial: Member TOPIC JOURNAL KEY=VALUE… It journals as
 * kafka_coop/testing/trial/journal.py describes, and closes when its standard input ends.
 */
public final class Member implements ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(50);

    private final FileOutputStream journal;
    private final KafkaConsumer<byte[], byte[]> consumer;

    private Member(String path, Properties config) throws IOException {
        journal = new FileOutputStream(path, true);
        consumer = new KafkaConsumer<>(config);
    }

    public static void main(String[] arguments) throws IOException {
        Properties config = new Properties();
        for (int i = 2; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            config.put(pair[0], pair[1]);
        }
        Member member = new Member(arguments[1], config);
        AtomicBoolean stop = new AtomicBoolean();
        Thread ear = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (IOException ended) {
                // the same
            }
            stop.set(true);
        });
        ear.setDaemon(true);
        ear.start();
        member.run(arguments[0], stop);
    }

    private void run(String topic, AtomicBoolean stop) {
        consumer.subscribe(List.of(topic), this);
        note("S", "");
        while (!stop.get()) {
            try {
                StringBuilder lines = new StringBuilder();
                long now = -1;
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(POLL)) {
                    now = now < 0 ? System.nanoTime() : now;
                    lines.append("R ").append(now).append(' ').append(r.partition()).append(' ')
                        .append(r.offset()).append('\n');
                }
                write(lines.toString());
            } catch (WakeupException none) {
                // nobody wakes it
            } catch (RuntimeException error) {
                note("E", error.toString().replace('\n', ' '));
            }
        }
        consumer.close();
        note("X", "");
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        told("A", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        told("V", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        told("L", partitions);
    }

    private void told(String kind, Collection<TopicPartition> partitions) {
        String list = partitions.stream().map(TopicPartition::partition).sorted()
            .map(String::valueOf).collect(Collectors.joining(","));
        note(kind, consumer.groupMetadata().generationId() + " " + list);
    }

    private void note(String kind, String rest) {
        write(kind + " " + System.nanoTime() + " " + rest + "\n");
    }

    private void write(String text) {
        try {
            journal.write(text.getBytes(StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }
}
