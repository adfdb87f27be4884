import io.lettuce.core.KeyScanCursor;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.sync.RedisAdvancedClusterCommands;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Asks a member for what caches need, then counts through all members until the input ends. Arguments: the addresses of members. Prints
 * "ready", and at the end one line of JSON: what was acknowledged and what is unknown of each counter, and what was wrong.
 */
public class Counters {
    static final int COUNTERS = 8;
    static final List<String> wrong = new ArrayList<>();

    static void expect(String what, Object wanted, Object found) {
        if (!wanted.equals(found)) {
            wrong.add("\"" + what + ": " + found + ", not " + wanted + "\"");
        }
    }

    static void ask(RedisURI address) {
        RedisClient client = RedisClient.create(address);
        RedisCommands<String, String> redis = client.connect().sync();
        expect("SET", "OK", redis.set("text", "value", SetArgs.Builder.ex(100)));
        expect("SET NX", "null", String.valueOf(redis.set("text", "other", SetArgs.Builder.nx())));
        expect("GET", "value", redis.get("text"));
        expect("TTL", true, redis.ttl("text") > 90);
        expect("APPEND", 6L, redis.append("text", "s"));
        expect("MSET", "OK", redis.mset(Map.of("one", "1", "two", "2")));
        expect("MGET", "[KeyValue[one, 1], KeyValue[two, 2], KeyValue[none].empty]", redis.mget("one", "two", "none").toString());
        expect("HSET", 2L, redis.hset("hash", Map.of("name", "Ada", "visits", "1")));
        expect("HINCRBY", 3L, redis.hincrby("hash", "visits", 2));
        expect("HGETALL", Map.of("name", "Ada", "visits", "3"), redis.hgetall("hash"));
        expect("TYPE", "hash", redis.type("hash"));
        KeyScanCursor<String> cursor = redis.scan(ScanArgs.Builder.matches("t*").limit(100));
        List<String> found = new ArrayList<>(cursor.getKeys());
        while (!cursor.isFinished()) {
            cursor = redis.scan(cursor, ScanArgs.Builder.matches("t*").limit(100));
            found.addAll(cursor.getKeys());
        }
        found.sort(null);
        expect("SCAN", List.of("text", "two"), found);
        redis.multi();
        redis.set("text", "5");
        redis.incr("text");
        TransactionResult done = redis.exec();
        expect("EXEC", "6", String.valueOf((Object) done.get(1)));
        try {
            redis.lpush("text", "x");
            wrong.add("\"LPUSH was not refused\"");
        } catch (RedisCommandExecutionException refused) {
            expect("LPUSH", true, refused.getMessage().startsWith("ERR"));
        }
        expect("DEL", 4L, redis.del("text", "one", "two", "hash"));
        client.shutdown();
    }

    public static void main(String[] arguments) throws Exception {
        List<RedisURI> addresses = new ArrayList<>();
        for (String each : arguments) {
            RedisURI address = RedisURI.create("redis://" + each);
            address.setTimeout(Duration.ofSeconds(10));
            addresses.add(address);
        }
        ask(addresses.get(0));
        AtomicBoolean over = new AtomicBoolean();
        Thread reader = new Thread(() -> {
            try {
                System.in.readAllBytes();
            } catch (java.io.IOException error) {
                // it is over all the same
            }
            over.set(true);
        });
        reader.setDaemon(true);
        reader.start();
        RedisClusterClient client = RedisClusterClient.create(addresses);
        ClusterTopologyRefreshOptions refresh = ClusterTopologyRefreshOptions.builder()
            .enablePeriodicRefresh(Duration.ofMillis(500)).enableAllAdaptiveRefreshTriggers().build();
        client.setOptions(ClusterClientOptions.builder().topologyRefreshOptions(refresh).build());
        RedisAdvancedClusterCommands<String, String> redis = client.connect().sync();
        int members = client.getPartitions().size();
        long[] acknowledged = new long[COUNTERS];
        long[] unknown = new long[COUNTERS];
        System.out.println("ready");
        for (int n = 0; !over.get(); n = (n + 1) % COUNTERS) {
            try {
                redis.incr("counter" + n);
                acknowledged[n]++;
            } catch (RedisCommandExecutionException refused) {
                unknown[n] += refused.getMessage().startsWith("TRYAGAIN") ? 0 : 1;
            } catch (RedisException lost) {
                unknown[n]++;
            }
        }
        List<String> told = new ArrayList<>();
        for (int n = 0; n < COUNTERS; n++) {
            told.add("[" + acknowledged[n] + ", " + unknown[n] + "]");
        }
        System.out.println("{\"members\": " + members + ", \"counters\": [" + String.join(", ", told) + "], \"wrong\": ["
            + String.join(", ", wrong) + "]}");
        client.shutdown();
    }
}
