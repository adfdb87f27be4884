import com.hazelcast.client.HazelcastClient;
import com.hazelcast.client.config.ClientConfig;
import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.map.IMap;
import java.math.BigDecimal;
import java.time.LocalDate;

/** Stores an object of a class without a serialiser, which is Compact, or tells what was stored: CLUSTER ADDRESSES put|get. */
public class Compact {
    public static class Author {
        public String name;
    }

    public static class Book {
        public String title;
        public Long price;
        public Author[] authors;
        public LocalDate printed;
        public BigDecimal weight;
    }

    public static void main(String[] args) {
        ClientConfig config = new ClientConfig();
        config.setClusterName(args[0]);
        config.getNetworkConfig().addAddress(args[1].split(","));
        HazelcastInstance client = HazelcastClient.newHazelcastClient(config);
        IMap<String, Book> books = client.getMap("books");
        if (args[2].equals("put")) {
            Author homer = new Author();
            homer.name = "Homer";
            Book book = new Book();
            book.title = "Iliad";
            book.authors = new Author[] {homer, null};
            book.printed = LocalDate.of(1488, 12, 9);
            book.weight = new BigDecimal("1.50");
            books.put("iliad", book);
        } else {
            Book book = books.get("iliad");
            System.out.println(book.title + " " + book.price + " " + book.authors[0].name + " " + book.authors[1] + " " + book.printed + " " + book.weight);
        }
        client.shutdown();
    }
}
