package stock

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// CheckServers asks the server of each sale who it is, and counts a sale as rewound when its server restarted or
// another one took its place since the last call: what the old one had not yet written or passed on is lost, even when
// the sequence numbers happen to fit (R15). The first call only learns. It returns the run id of the server of each
// sale, "" of one that does not tell (the stand-in), which never counts. Called every second, it costs one INFO a node.
func (s *Store) CheckServers(ctx context.Context, activityIDs []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.CallTimeout)
	defer cancel()
	asked := make(map[redis.UniversalClient]string)
	runs := make(map[string]string, len(activityIDs))
	for _, id := range activityIDs {
		k, err := keysOf(id)
		if err != nil {
			return nil, fmt.Errorf("check servers: %w", err)
		}
		node, err := s.nodeOf(ctx, k)
		if err != nil {
			return nil, fmt.Errorf("check servers: %w", classify(err))
		}
		run, ok := asked[node]
		if !ok {
			info, err := node.Info(ctx, "server").Result()
			if err != nil && !strings.Contains(err.Error(), "section") { // the stand-in knows no such section
				return nil, fmt.Errorf("check servers: %w", classify(err))
			}
			run = runID(info)
			asked[node] = run
		}
		runs[id] = run
		if run != "" {
			s.noteRun(id, run)
		}
	}
	return runs, nil
}

// nodeOf returns the client of the node that holds a sale.
func (s *Store) nodeOf(ctx context.Context, k keys) (redis.UniversalClient, error) {
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, k.meta())
	}
	return s.rdb, nil
}

func runID(info string) string {
	for line := range strings.Lines(info) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "run_id:"); ok {
			return id
		}
	}
	return ""
}

// noteRun remembers the server of a sale, and marks the sale rewound when it is another than before.
func (s *Store) noteRun(activityID, run string) {
	s.mu.Lock()
	p, known := s.seen[activityID]
	before := p.run
	if known {
		p.run = run
		s.seen[activityID] = p
	}
	s.mu.Unlock()
	if known && before != "" && before != run {
		s.markRewound(activityID, p.epoch)
	}
}
