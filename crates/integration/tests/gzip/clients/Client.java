import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.zip.CRC32;
import java.util.zip.GZIPInputStream;

/** Fetches a page several times at once: URL COUNT. Prints its length and its checksum. */
public class Client {
    public static void main(String[] arguments) throws Exception {
        URI page = URI.create(arguments[0]);
        int count = Integer.parseInt(arguments[1]);
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        ExecutorService pool = Executors.newFixedThreadPool(count);
        List<Future<String>> results = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            results.add(pool.submit(() -> fetch(client, page)));
        }
        Set<String> pages = new HashSet<>();
        for (Future<String> result : results) {
            pages.add(result.get());
        }
        pool.shutdown();
        if (pages.size() != 1) {
            throw new IllegalStateException(pages.toString());
        }
        System.out.println(count + " pages of " + pages.iterator().next());
    }

    private static String fetch(HttpClient client, URI page) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(page)
                .header("Accept-Encoding", "gzip")
                .timeout(Duration.ofSeconds(60))
                .build();
        HttpResponse<InputStream> response =
                client.send(request, HttpResponse.BodyHandlers.ofInputStream());
        String coding = response.headers().firstValue("Content-Encoding").orElse("");
        if (response.statusCode() != 200 || !coding.equals("gzip")) {
            throw new IllegalStateException(response.statusCode() + " " + coding);
        }
        try (InputStream body = new GZIPInputStream(response.body())) {
            byte[] content = body.readAllBytes();
            CRC32 checksum = new CRC32();
            checksum.update(content);
            return String.format("%d %08x", content.length, checksum.getValue());
        }
    }
}
