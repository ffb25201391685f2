import java.io.FileInputStream;
import java.io.InputStream;
import java.net.URL;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Fetches / over TLS on several connections at once: PORT AUTHORITY VERSION CONNECTIONS. */
public class Client {
    public static void main(String[] arguments) throws Exception {
        String version = "TLSv" + arguments[2];
        int connections = Integer.parseInt(arguments[3]);
        URL url = new URL("https://localhost:" + arguments[0] + "/");
        TrustManagerFactory trust = trusting(arguments[1]);

        ExecutorService pool = Executors.newFixedThreadPool(connections);
        List<Future<?>> results = new ArrayList<>();
        for (int i = 0; i < connections; i++) {
            // A context each, or sessions would be resumed.
            SSLContext context = SSLContext.getInstance(version);
            context.init(null, trust.getTrustManagers(), null);
            results.add(pool.submit(() -> {
                fetch(url, context, version);
                return null;
            }));
        }
        for (Future<?> result : results) {
            result.get();
        }
        pool.shutdown();
        System.out.println(connections + " served");
    }

    private static void fetch(URL url, SSLContext context, String version) throws Exception {
        HttpsURLConnection connection = (HttpsURLConnection) url.openConnection();
        connection.setSSLSocketFactory(context.getSocketFactory());
        connection.setReadTimeout(60_000);
        try (InputStream body = connection.getInputStream()) {
            String text = new String(body.readAllBytes());
            if (connection.getResponseCode() != 200 || !text.equals(version)) {
                throw new IllegalStateException(connection.getResponseCode() + ": " + text);
            }
        }
    }

    private static TrustManagerFactory trusting(String authority) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null);
        try (InputStream pem = new FileInputStream(authority)) {
            CertificateFactory factory = CertificateFactory.getInstance("X.509");
            store.setCertificateEntry("authority", factory.generateCertificate(pem));
        }
        TrustManagerFactory trust =
                TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        return trust;
    }
}
