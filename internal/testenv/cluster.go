package testenv

import "errors"

// Cluster is several server processes that form one service: a Redis Cluster or a Kafka cluster. Each node can be hurt
// by itself.
type Cluster struct {
	// Nodes are the servers. Redis: node i holds the i-th equal share of the slots. Kafka: node i has id i+1.
	Nodes []*Server
}

// Addrs are the addresses of all nodes, host:port.
func (c *Cluster) Addrs() []string {
	list := make([]string, len(c.Nodes))
	for i, s := range c.Nodes {
		list[i] = s.Addr
	}
	return list
}

// Close ends all nodes and removes their data.
func (c *Cluster) Close() error {
	errs := make([]error, len(c.Nodes))
	for i, s := range c.Nodes {
		errs[i] = s.Close()
	}
	return errors.Join(errs...)
}
