// Writes and reads keys of one map until its input ends, and tells in one line of JSON what it was told. (See ../writer.py.)
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hazelcast/hazelcast-go-client"
	"github.com/hazelcast/hazelcast-go-client/logger"
	"github.com/hazelcast/hazelcast-go-client/types"
)

type told struct {
	Acknowledged int      `json:"acknowledged"`
	Errors       int      `json:"errors"`
	Violations   []string `json:"violations"`
}

func main() {
	ctx, prefix := context.Background(), os.Args[3]
	config := hazelcast.NewConfig()
	config.Cluster.Name = os.Args[1]
	config.Cluster.Network.SetAddresses(strings.Split(os.Args[2], ",")...)
	config.Cluster.InvocationTimeout = types.Duration(20 * time.Second)
	config.Logger.Level = logger.OffLevel
	client, err := hazelcast.StartNewClientWithConfig(ctx, config)
	must(err)
	shared, err := client.GetMap(ctx, "shared")
	must(err)
	result := told{Violations: []string{}}
	var over atomic.Bool
	go func() { io.Copy(io.Discard, os.Stdin); over.Store(true) }()
	fmt.Println("ready")
	possible := map[string][]any{}
	check := func(key string) error {
		found, err := shared.Get(ctx, key)
		if err != nil {
			return err
		}
		for _, allowed := range possible[key] {
			if allowed == found {
				return nil
			}
		}
		result.Violations = append(result.Violations, fmt.Sprintf("%s is %v, not one of %v", key, found, possible[key]))
		return nil
	}
	for n := int64(0); !over.Load(); n++ {
		key := fmt.Sprintf("%s-%d", prefix, n%20)
		if possible[key] == nil {
			possible[key] = []any{nil}
		}
		possible[key] = append(possible[key], n)
		_, err := shared.Put(ctx, key, n)
		if err == nil {
			possible[key] = []any{n}
			result.Acknowledged++
			err = check(key)
		}
		if err != nil {
			result.Errors++
		}
	}
	for key := range possible {
		must(check(key))
	}
	line, err := json.Marshal(result)
	must(err)
	fmt.Println(string(line))
	must(client.Shutdown(ctx))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
