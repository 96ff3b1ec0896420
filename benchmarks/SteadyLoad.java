import java.io.IOException;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * SteadyLoad BOOTSTRAP TOPIC PARTITIONS RATE: so many records a second, to the partitions in turns,
 * until its standard input ends. It has failed where the broker did not take all of them.
 */
public final class SteadyLoad {
    private static final long BURST_MILLIS = 4;
    private static final int SIZE = 100;
    private static final long SECOND = 1_000_000_000L;

    private final AtomicReference<Exception> failure = new AtomicReference<>();

    private volatile boolean stopped;

    private SteadyLoad() { }

    public static void main(String[] arguments) throws Exception {
        SteadyLoad load = new SteadyLoad();
        Thread listener = new Thread(load::waitForTheEnd);
        listener.setDaemon(true);
        listener.start();
        int partitions = Integer.parseInt(arguments[2]);
        load.run(arguments[0], arguments[1], partitions, Long.parseLong(arguments[3]));
    }

    private void waitForTheEnd() {
        try {
            while (System.in.read() >= 0) { }
        } catch (IOException ended) {
            // nobody is left to tell it, and that is an end, too
        }
        stopped = true;
    }

    private void run(String bootstrap, String topic, int partitions, long rate) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("linger.ms", "1");
        config.put("key.serializer", ByteArraySerializer.class.getName());
        config.put("value.serializer", ByteArraySerializer.class.getName());
        byte[] value = new byte[SIZE];
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config)) {
            producer.partitionsFor(topic);
            long began = System.nanoTime();
            long sent = 0;
            while (!stopped && failure.get() == null) {
                long due = (System.nanoTime() - began) * rate / SECOND;
                for (; sent < due; sent++) {
                    int partition = (int) (sent % partitions);
                    producer.send(new ProducerRecord<>(topic, partition, null, value), (taken, error) -> {
                        if (error != null) {
                            failure.compareAndSet(null, error);
                        }
                    });
                }
                TimeUnit.MILLISECONDS.sleep(BURST_MILLIS);
            }
        }
        if (failure.get() != null) {
            throw failure.get();
        }
    }
}
