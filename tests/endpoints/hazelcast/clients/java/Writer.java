// Writes and reads keys of one map until its input ends, and tells in one line of JSON what it was told. (See ../writer.py.)
import com.hazelcast.client.HazelcastClient;
import com.hazelcast.client.config.ClientConfig;
import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.map.IMap;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

public class Writer {
    static volatile boolean over = false;
    static final Map<String, List<Long>> possible = new HashMap<>();
    static final List<String> violations = new ArrayList<>();

    static void check(IMap<String, Long> shared, String key) {
        Long found = shared.get(key);
        if (!possible.get(key).contains(found)) {
            violations.add("\"" + key + " is " + found + ", not one of " + possible.get(key) + "\"");
        }
    }

    public static void main(String[] arguments) {
        ClientConfig config = new ClientConfig();
        config.setClusterName(arguments[0]);
        config.getNetworkConfig().addAddress(arguments[1].split(","));
        config.setProperty("hazelcast.logging.type", "none");
        config.setProperty("hazelcast.client.invocation.timeout.seconds", "20");
        config.setProperty("hazelcast.phone.home.enabled", "false");
        HazelcastInstance client = HazelcastClient.newHazelcastClient(config);
        IMap<String, Long> shared = client.getMap("shared");
        Thread reader = new Thread(() -> {
            try {
                System.in.readAllBytes();
            } catch (java.io.IOException error) {
                // it is over all the same
            }
            over = true;
        });
        reader.setDaemon(true);
        reader.start();
        System.out.println("ready");
        int acknowledged = 0;
        int errors = 0;
        for (long n = 0; !over; n++) {
            String key = arguments[2] + "-" + n % 20;
            List<Long> before = possible.computeIfAbsent(key, each -> {
                List<Long> none = new ArrayList<>();
                none.add(null);
                return none;
            });
            before.add(n);
            try {
                shared.put(key, n);
                possible.put(key, new ArrayList<>(List.of(n)));
                acknowledged++;
                check(shared, key);
            } catch (RuntimeException error) {
                errors++;
            }
        }
        for (String key : possible.keySet()) {
            check(shared, key);
        }
        System.out.println("{\"acknowledged\": " + acknowledged + ", \"errors\": " + errors + ", \"violations\": ["
            + String.join(", ", violations) + "]}");
        client.shutdown();
    }
}
