// Command keeper is the demo's job. It answers each TCP connection with a greeting and the number of connections, which it counts in
// a file.
package main

import (
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: keeper ADDRESS FILE GREETING")
	}
	address, file, greeting := os.Args[1], os.Args[2], os.Args[3]
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		if err := answer(connection, file, greeting); err != nil {
			log.Print(err)
		}
	}
}

func answer(connection net.Conn, file, greeting string) error {
	defer connection.Close()
	count := 0
	if raw, err := os.ReadFile(file); err == nil {
		count, _ = strconv.Atoi(strings.TrimSpace(string(raw)))
	}
	count++
	if err := os.WriteFile(file, fmt.Appendln(nil, count), 0o644); err != nil {
		return err
	}
	_, err := fmt.Fprintf(connection, "%s: asked %d times, counted in %s\n", greeting, count, file)
	return err
}
