// Command keeper is the program of the demo's job. It responds to each TCP connection with a greeting and the number of connections, and
// stores the number in a file.
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
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		if err := respond(conn, file, greeting); err != nil {
			log.Print(err)
		}
	}
}

func respond(conn net.Conn, file, greeting string) error {
	defer conn.Close()
	count := 0
	if raw, err := os.ReadFile(file); err == nil {
		count, _ = strconv.Atoi(strings.TrimSpace(string(raw)))
	}
	count++
	if err := os.WriteFile(file, fmt.Appendln(nil, count), 0o644); err != nil {
		return err
	}
	_, err := fmt.Fprintf(conn, "%s: connection %d, counted in %s\n", greeting, count, file)
	return err
}
