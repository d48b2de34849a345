// What runs in the pods that try the cluster itself: web serve, web get URL.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"
)

const timeout = 2 * time.Second

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "serve":
		log.Fatal(serve())
	case len(os.Args) == 3 && os.Args[1] == "get":
		if err := get(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: web serve | web get URL")
		os.Exit(2)
	}
}

// serve answers with the pod's name, on port 8080.
func serve() error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	fmt.Println("serving as", name)
	return http.ListenAndServe(":8080", http.HandlerFunc(
		func(answer http.ResponseWriter, _ *http.Request) { fmt.Fprint(answer, name) },
	))
}

func get(url string) error {
	client := http.Client{Timeout: timeout}
	answer, err := client.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}
