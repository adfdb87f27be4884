// Stores a Compact object, or tells what another client has stored: CLUSTER ADDRESSES put|get KEY. (The classes are those of ../../test_compact.py.)
'use strict';

const { BigDecimal, Client, LocalDate } = require('hazelcast-client');
const Long = require('long');

class Author {
    constructor(name) {
        this.name = name;
    }
}

class Book {
    constructor(title, price, authors, printed, weight) {
        Object.assign(this, { title, price, authors, printed, weight });
    }
}

const authors = {
    getClass: () => Author,
    getTypeName: () => 'author',
    read: (reader) => new Author(reader.readString('name')),
    write: (writer, author) => writer.writeString('name', author.name),
};

const books = {
    getClass: () => Book,
    getTypeName: () => 'book',
    read: (reader) => new Book(
        reader.readString('title'), reader.readNullableInt64('price'), reader.readArrayOfCompact('authors'), reader.readDate('printed'),
        reader.readDecimal('weight'),
    ),
    write: (writer, book) => {
        writer.writeString('title', book.title);
        writer.writeNullableInt64('price', book.price);
        writer.writeArrayOfCompact('authors', book.authors);
        writer.writeDate('printed', book.printed);
        writer.writeDecimal('weight', book.weight);
    },
};

(async () => {
    const [cluster, addresses, what, key] = process.argv.slice(2);
    const client = await Client.newHazelcastClient({
        clusterName: cluster,
        network: { clusterMembers: addresses.split(',') },
        serialization: { compact: { serializers: [authors, books] } },
        properties: { 'hazelcast.logging.level': 'OFF' },
    });
    const shared = await client.getMap('books');
    if (what === 'put') {
        const homer = new Author('Homer');
        await shared.put(key, new Book('Iliad', Long.fromNumber(12), [homer], new LocalDate(1488, 12, 9), BigDecimal.fromString('1.50')));
    } else {
        const { title, price, authors: by, printed, weight } = await shared.get(key);
        console.log(JSON.stringify([title, price && price.toNumber(), by.map((each) => each.name), printed.toString(), weight.toString()]));
    }
    await client.shutdown();
})();
