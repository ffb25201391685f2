// Fetches a page several times at once: URL COUNT. Prints its length and its checksum.
package main

import (
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
)

func fetch(url string) (string, error) {
	// The transport asks for gzip and decodes it, unless it is told otherwise.
	response, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != 200 || !response.Uncompressed {
		return "", fmt.Errorf("status %d, compressed: %t", response.StatusCode, response.Uncompressed)
	}
	return fmt.Sprintf("%d %08x", len(content), crc32.ChecksumIEEE(content)), nil
}

func main() {
	url := os.Args[1]
	count, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	pages, errors := make(chan string), make(chan error)
	for i := 0; i < count; i++ {
		go func() {
			page, err := fetch(url)
			if err != nil {
				errors <- err
				return
			}
			pages <- page
		}()
	}
	first := ""
	for i := 0; i < count; i++ {
		select {
		case err := <-errors:
			log.Fatal(err)
		case page := <-pages:
			if first != "" && page != first {
				log.Fatalf("%s and %s", first, page)
			}
			first = page
		}
	}
	fmt.Println(count, "pages of", first)
}
