// franz-go's group balancer behind stdin and stdout; wire.py has the protocol.
//
// A run is what kgo does as a group's leader between JoinGroup's answer and SyncGroup's request
// (groupConsumer.balanceGroup), without its logging and without asking for metadata.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"sort"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type peer struct {
	in       *bufio.Reader
	out      *bufio.Writer
	balancer kgo.GroupBalancer
	topics   map[string]int32
	members  []kmsg.JoinGroupResponseMember
	answers  []kmsg.SyncGroupRequestGroupAssignment
}

func main() {
	p := &peer{in: bufio.NewReaderSize(os.Stdin, 1<<20), out: bufio.NewWriterSize(os.Stdout, 1<<20)}
	for {
		letter, err := p.in.ReadByte()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = p.serve(letter)
		}
		if err != nil {
			log.Fatal(err) // the other side is told through stderr
		}
		if err := p.out.Flush(); err != nil {
			return // nobody listens any more
		}
	}
}

func (p *peer) serve(letter byte) error {
	switch letter {
	case 'L':
		if err := p.load(); err != nil {
			return err
		}
		return p.out.WriteByte(0)
	case 'R':
		cpuBegan := cpuTime()
		took, err := p.run()
		cpuTook := cpuTime() - cpuBegan
		if err != nil {
			return err
		}
		p.out.WriteByte(0)
		return binary.Write(p.out, binary.BigEndian, [2]int64{took.Nanoseconds(), cpuTook})
	case 'A':
		p.out.WriteByte(0)
		p.writeInt(len(p.answers))
		for _, a := range p.answers {
			p.writeBytes([]byte(a.MemberID))
			p.writeBytes(a.MemberAssignment)
		}
		return nil
	}
	return fmt.Errorf("no such request: %q", letter)
}

func (p *peer) run() (time.Duration, error) {
	p.answers = nil
	began := time.Now()
	sort.Slice(p.members, func(i, j int) bool { return less(&p.members[i], &p.members[j]) })
	group, _, err := p.balancer.MemberBalancer(p.members)
	if err != nil {
		return 0, err
	}
	plan, err := group.(kgo.GroupMemberBalancerOrError).BalanceOrError(p.topics)
	if err != nil {
		return 0, err
	}
	p.answers = plan.IntoSyncAssignment()
	return time.Since(began), nil
}

// cpuTime returns the nanoseconds that all threads have used so far.
func cpuTime() int64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // it takes no argument that could be wrong
	}
	return used.Utime.Nano() + used.Stime.Nano()
}

// Static members by instance id, then the others by member id: kgo's order.
func less(l, r *kmsg.JoinGroupResponseMember) bool {
	switch {
	case l.InstanceID != nil && r.InstanceID != nil:
		return *l.InstanceID < *r.InstanceID
	case l.InstanceID != nil || r.InstanceID != nil:
		return l.InstanceID != nil
	}
	return l.MemberID < r.MemberID
}

func (p *peer) load() error {
	name, _, err := p.readBytes()
	if err != nil {
		return err
	}
	balancers := map[string]kgo.GroupBalancer{
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
		"sticky":             kgo.StickyBalancer(),
		"range":              kgo.RangeBalancer(),
		"roundrobin":         kgo.RoundRobinBalancer(),
	}
	p.balancer = balancers[string(name)]
	if p.balancer == nil {
		return fmt.Errorf("franz-go has no balancer %q", name)
	}
	own, err := p.in.ReadByte()
	if err != nil {
		return err
	}
	if err := p.readTopics(); err != nil {
		return err
	}
	return p.readMembers(own != 0)
}

func (p *peer) readTopics() error {
	count, err := p.readInt()
	if err != nil {
		return err
	}
	p.topics = make(map[string]int32, count)
	for range count {
		topic, _, err := p.readBytes()
		if err != nil {
			return err
		}
		partitions, err := p.readInt()
		if err != nil {
			return err
		}
		p.topics[string(topic)] = int32(partitions)
		racked, err := p.in.ReadByte()
		if err != nil {
			return err
		}
		if racked != 0 {
			return errors.New("racks can be set from inside kgo alone")
		}
	}
	return nil
}

func (p *peer) readMembers(own bool) error {
	count, err := p.readInt()
	if err != nil {
		return err
	}
	p.members = make([]kmsg.JoinGroupResponseMember, count)
	for i := range p.members {
		member := &p.members[i]
		member.Default()
		id, _, err := p.readBytes()
		if err != nil {
			return err
		}
		member.MemberID = string(id)
		instance, given, err := p.readBytes()
		if err != nil {
			return err
		}
		if given {
			text := string(instance)
			member.InstanceID = &text
		}
		if member.ProtocolMetadata, _, err = p.readBytes(); err != nil {
			return err
		}
		if own {
			if err := p.asOwn(member); err != nil {
				return err
			}
		}
	}
	return nil
}

// asOwn replaces another client's subscription by the one that kgo would have sent.
func (p *peer) asOwn(member *kmsg.JoinGroupResponseMember) error {
	meta := kmsg.NewConsumerMemberMetadata()
	if err := meta.ReadFrom(member.ProtocolMetadata); err != nil {
		return err
	}
	owned := make(map[string][]int32, len(meta.OwnedPartitions))
	for _, t := range meta.OwnedPartitions {
		owned[t.Topic] = t.Partitions
	}
	member.ProtocolMetadata = p.balancer.JoinGroupMetadata(meta.Topics, owned, meta.Generation)
	return nil
}

func (p *peer) readInt() (int, error) {
	var raw [4]byte
	_, err := io.ReadFull(p.in, raw[:])
	return int(int32(binary.BigEndian.Uint32(raw[:]))), err
}

func (p *peer) readBytes() (data []byte, given bool, err error) {
	size, err := p.readInt()
	if err != nil || size < 0 {
		return nil, false, err
	}
	data = make([]byte, size)
	_, err = io.ReadFull(p.in, data)
	return data, true, err
}

func (p *peer) writeInt(n int) {
	var raw [4]byte
	binary.BigEndian.PutUint32(raw[:], uint32(n))
	p.out.Write(raw[:])
}

func (p *peer) writeBytes(data []byte) {
	p.writeInt(len(data))
	p.out.Write(data)
}
