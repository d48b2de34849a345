package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
)

// relay carries connections from the listening socket that it inherited to arguments[0], an address.
//
// The socket belongs to the network namespace where it was made, whatever that of this process: so
// the machine's loopback leads into the cluster's network, which has no other way in.
func relay(arguments []string) error {
	descriptor, err := strconv.Atoi(os.Getenv("LISTENER"))
	if err != nil || len(arguments) != 1 {
		return fmt.Errorf("usage: LISTENER=DESCRIPTOR relay ADDRESS:PORT")
	}
	listener, err := net.FileListener(os.NewFile(uintptr(descriptor), "listener"))
	if err != nil {
		return err
	}
	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		go carry(client.(*net.TCPConn), arguments[0])
	}
}

func carry(client *net.TCPConn, address string) {
	defer client.Close()
	connection, err := net.Dial("tcp", address)
	if err != nil {
		log.Print(err)
		return
	}
	server := connection.(*net.TCPConn)
	defer server.Close()
	done := make(chan struct{}, 2)
	pass := func(to, from *net.TCPConn) {
		io.Copy(to, from)
		to.CloseWrite()
		done <- struct{}{}
	}
	go pass(server, client)
	go pass(client, server)
	<-done
	<-done
}
