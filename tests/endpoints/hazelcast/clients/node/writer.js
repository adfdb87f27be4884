// Writes and reads keys of one map until its input ends, and tells in one line of JSON what it was told. (See ../writer.py.)
const { Client } = require('hazelcast-client');

async function main() {
    const [cluster, members, prefix] = process.argv.slice(2);
    const client = await Client.newHazelcastClient({
        clusterName: cluster,
        network: { clusterMembers: members.split(',') },
        properties: { 'hazelcast.logging.level': 'OFF', 'hazelcast.client.invocation.timeout.millis': 20000 },
    });
    const map = await client.getMap('shared');
    const told = { acknowledged: 0, errors: 0, violations: [] };
    const possible = new Map();
    let isOver = false;
    process.stdin.on('end', () => { isOver = true; }).resume();
    console.log('ready');
    const keys = Array.from({ length: 20 }, (_, i) => `${prefix}-${i}`);
    const check = (key, found) => {
        const allowed = possible.get(key) || [null];
        if (!allowed.includes(found)) {
            told.violations.push(`${key} is ${found}, not one of ${allowed}`);
        }
    };
    for (let n = 0; !isOver; n++) {
        const key = keys[n % keys.length];
        possible.set(key, [...(possible.get(key) || [null]), n]);
        try {
            await map.put(key, n);
            possible.set(key, [n]);
            told.acknowledged++;
            check(key, await map.get(key));
        } catch (error) {
            told.errors++;
        }
        if (n % 20 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    }
    for (const key of keys) check(key, await map.get(key));
    told.read = await map.get('from-python');
    await map.put(`${prefix}-json`, { from: prefix, list: [1, 2] });
    console.log(JSON.stringify(told));
    await client.shutdown();
}

main().catch((error) => { console.error(error); process.exit(1); });
