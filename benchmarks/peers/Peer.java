// In this package to call AbstractStickyAssignor.memberData.
package org.apache.kafka.clients.consumer.internals;

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.RebalanceProtocol;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * The Java client's assignors and codecs behind stdin and stdout; wire.py has the protocol.
 *
 * A run is what ConsumerCoordinator.onLeaderElected does between JoinGroup's answer and
 * SyncGroup's request, without its logging. Four requests are for the tests alone:
 *
 *   S  subscription  int8 version, bytes        -> bytes: read, and written again
 *   D  assignment    bytes                      -> bytes: the same, as version 0
 *   C  claim         assignor, subscription     -> int8 known, int32 generation, partitions
 *   U  user data     assignor, assignment, int32 generation -> what is sent with the next join
 *
 *   partitions       int32 n, n * (topic, int32)
 *
 * Answers list partitions by topic and number (Java's own order is that of a hash table), as
 * version 0.
 */
public final class Peer {
    private static final short VERSION = 0;
    private static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final Comparator<TopicPartition> BY_NAME =
        Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition);

    private record Member(String id, Optional<String> instance, ByteBuffer subscription) { }

    private final DataInputStream in;
    private final DataOutputStream out;
    private ConsumerPartitionAssignor assignor;
    private Cluster cluster;
    private List<Member> members;
    private Map<String, Assignment> plan;

    private Peer() {
        in = new DataInputStream(new BufferedInputStream(System.in, 1 << 20));
        out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 20));
    }

    public static void main(String[] arguments) throws IOException {
        new Peer().serve();
    }

    private void serve() throws IOException {
        for (int letter = in.read(); letter >= 0; letter = in.read()) {
            try {
                answer((char) letter);
            } catch (RuntimeException error) {
                // Answers begin once there is nothing left that may fail.
                out.writeByte(1);
                writeString(error.toString());
            }
            out.flush();
        }
    }

    private void answer(char letter) throws IOException {
        switch (letter) {
            case 'L' -> load();
            case 'R' -> run();
            case 'A' -> answers();
            case 'S' -> subscription();
            case 'D' -> assignment();
            case 'C' -> claim();
            case 'U' -> userData();
            default -> throw new IOException("no such request: " + letter);
        }
    }

    // --- the leader ---------------------------------------------------------------------

    private void load() throws IOException {
        assignor = assignorNamed(readString());
        boolean own = in.readByte() != 0;
        readCluster();
        members = new ArrayList<>();
        for (int left = in.readInt(); left > 0; left--) {
            String id = readString();
            Optional<String> instance = Optional.ofNullable(readString());
            ByteBuffer subscription = ByteBuffer.wrap(readBytes());
            members.add(new Member(id, instance, own ? asOwn(id, subscription) : subscription));
        }
        out.writeByte(0);
    }

    private void readCluster() throws IOException {
        Map<String, Node> nodes = new HashMap<>();
        Node leader = new Node(0, "localhost", 9092);
        nodes.put(null, leader);
        List<PartitionInfo> partitions = new ArrayList<>();
        for (int left = in.readInt(); left > 0; left--) {
            String topic = readString();
            int count = in.readInt();
            boolean racked = in.readByte() != 0;
            for (int partition = 0; partition < count; partition++) {
                Node[] replicas = {leader};
                if (racked) {
                    replicas = new Node[in.readInt()];
                    for (int i = 0; i < replicas.length; i++) {
                        replicas[i] = nodes.computeIfAbsent(
                            readString(), r -> new Node(nodes.size(), "localhost", 9092, r));
                    }
                }
                partitions.add(new PartitionInfo(topic, partition, leader, replicas, replicas));
            }
        }
        cluster = new Cluster("cluster", nodes.values(), partitions,
            Collections.emptySet(), Collections.emptySet());
    }

    /** What this client would have sent in the place of another. */
    private ByteBuffer asOwn(String member, ByteBuffer data) {
        Subscription other = ConsumerProtocol.deserializeSubscription(data);
        ConsumerPartitionAssignor mine = assignorNamed(assignor.name());
        int generation = other.generationId().orElse(-1);
        List<TopicPartition> owned = other.ownedPartitions();
        if (!owned.isEmpty()) {
            mine.onAssignment(new Assignment(owned),
                new ConsumerGroupMetadata("group", generation, member, Optional.empty()));
        }
        if (!assignor.supportedProtocols().contains(RebalanceProtocol.COOPERATIVE)) {
            owned = Collections.emptyList();
        }
        return ConsumerProtocol.serializeSubscription(new Subscription(other.topics(),
            mine.subscriptionUserData(new HashSet<>(other.topics())), owned, generation,
            other.rackId()));
    }

    private void run() throws IOException {
        plan = null;
        long began = System.nanoTime();
        long cpuBegan = SYSTEM.getProcessCpuTime();
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (Member member : members) {
            Subscription subscription =
                ConsumerProtocol.deserializeSubscription(member.subscription.duplicate());
            subscription.setGroupInstanceId(member.instance);
            subscriptions.put(member.id, subscription);
        }
        plan = assignor.assign(cluster, new GroupSubscription(subscriptions)).groupAssignment();
        Map<String, ByteBuffer> encoded = new HashMap<>();
        for (Map.Entry<String, Assignment> entry : plan.entrySet()) {
            encoded.put(entry.getKey(), ConsumerProtocol.serializeAssignment(entry.getValue()));
        }
        long took = System.nanoTime() - began;
        long cpuTook = SYSTEM.getProcessCpuTime() - cpuBegan;
        out.writeByte(0);
        out.writeLong(took);
        out.writeLong(cpuTook);
    }

    private void answers() throws IOException {
        out.writeByte(0);
        out.writeInt(plan.size());
        for (Map.Entry<String, Assignment> entry : plan.entrySet()) {
            List<TopicPartition> partitions = new ArrayList<>(entry.getValue().partitions());
            partitions.sort(BY_NAME);
            writeString(entry.getKey());
            writeBytes(ConsumerProtocol.serializeAssignment(
                new Assignment(partitions, entry.getValue().userData()), VERSION));
        }
    }

    private static ConsumerPartitionAssignor assignorNamed(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException("Java has no assignor " + name);
        };
    }

    // --- the codecs ---------------------------------------------------------------------

    private void subscription() throws IOException {
        short version = in.readByte();
        Subscription read = ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(readBytes()));
        out.writeByte(0);
        writeBytes(ConsumerProtocol.serializeSubscription(read, version));
    }

    private void assignment() throws IOException {
        Assignment read = ConsumerProtocol.deserializeAssignment(ByteBuffer.wrap(readBytes()));
        out.writeByte(0);
        writeBytes(ConsumerProtocol.serializeAssignment(read, VERSION));
    }

    private void claim() throws IOException {
        AbstractStickyAssignor sticky = (AbstractStickyAssignor) assignorNamed(readString());
        AbstractStickyAssignor.MemberData data = sticky.memberData(
            ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(readBytes())));
        out.writeByte(0);
        out.writeByte(data.generation.isPresent() ? 1 : 0);
        out.writeInt(data.generation.orElse(-1));
        out.writeInt(data.partitions.size());
        for (TopicPartition partition : data.partitions) {
            writeString(partition.topic());
            out.writeInt(partition.partition());
        }
    }

    private void userData() throws IOException {
        ConsumerPartitionAssignor mine = assignorNamed(readString());
        Assignment given = ConsumerProtocol.deserializeAssignment(ByteBuffer.wrap(readBytes()));
        mine.onAssignment(given,
            new ConsumerGroupMetadata("group", in.readInt(), "member", Optional.empty()));
        out.writeByte(0);
        writeBytes(mine.subscriptionUserData(new HashSet<>()));
    }

    // --- fields -------------------------------------------------------------------------

    private byte[] readBytes() throws IOException {
        int size = in.readInt();
        return size < 0 ? null : in.readNBytes(size);
    }

    private String readString() throws IOException {
        byte[] data = readBytes();
        return data == null ? null : new String(data, StandardCharsets.UTF_8);
    }

    private void writeBytes(ByteBuffer data) throws IOException {
        if (data == null) {
            out.writeInt(-1);
            return;
        }
        byte[] copy = new byte[data.remaining()];
        data.duplicate().get(copy);
        out.writeInt(copy.length);
        out.write(copy);
    }

    private void writeString(String text) throws IOException {
        writeBytes(ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8)));
    }
}
