// Fetches / over TLS on several connections at once: PORT AUTHORITY VERSION CONNECTIONS.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

var versions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

func fetch(port, version string, roots *x509.CertPool) error {
	client := http.Client{
		Timeout: time.Minute,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{
				RootCAs:    roots,
				MinVersion: versions[version],
				MaxVersion: versions[version],
			},
		},
	}
	response, err := client.Get("https://localhost:" + port + "/")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != 200 || string(body) != "TLSv"+version {
		return fmt.Errorf("%s: %q", response.Status, body)
	}
	return nil
}

func main() {
	port, authority, version := os.Args[1], os.Args[2], os.Args[3]
	connections, err := strconv.Atoi(os.Args[4])
	if err != nil {
		panic(err)
	}
	pem, err := os.ReadFile(authority)
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		panic("no certificate in " + authority)
	}
	results := make(chan error)
	for range connections {
		go func() { results <- fetch(port, version, roots) }()
	}
	for range connections {
		if err := <-results; err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	fmt.Println(connections, "served")
}
