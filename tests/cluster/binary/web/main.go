// Program web runs in the pods that test the cluster itself: web serve, web [-within 30s] get URL.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"
)

func main() {
	within := flag.Duration("within", 30*time.Second, "how long get waits: lost packets are sent again in it")
	flag.Parse()
	switch {
	case flag.NArg() == 1 && flag.Arg(0) == "serve":
		log.Fatal(serve())
	case flag.NArg() == 2 && flag.Arg(0) == "get":
		if err := get(flag.Arg(1), *within); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: web serve | web [-within 30s] get URL")
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

func get(url string, within time.Duration) error {
	client := http.Client{Timeout: within}
	answer, err := client.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}
