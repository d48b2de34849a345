// Command franz copies a topic between two clusters, record by record, as a short program on
// franz-go does. It stops at the first error, and commits what the target has acknowledged.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(),
	"lz4":  kgo.Lz4Compression(),
	"zstd": kgo.ZstdCompression(),
}

// client returns a client of a cluster. Folders contain ca.crt, tls.crt and tls.key; without them
// the connections are not encrypted.
func client(servers, ca, own string, options ...kgo.Opt) *kgo.Client {
	options = append(options, kgo.SeedBrokers(strings.Split(servers, ",")...))
	if ca != "" {
		pem, err := os.ReadFile(ca + "/ca.crt")
		if err != nil {
			log.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		pair, err := tls.LoadX509KeyPair(own+"/tls.crt", own+"/tls.key")
		if err != nil {
			log.Fatal(err)
		}
		config := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}
		options = append(options, kgo.DialTLSConfig(config))
	}
	made, err := kgo.NewClient(options...)
	if err != nil {
		log.Fatal(err)
	}
	return made
}

func main() {
	source := flag.String("source", "", "brokers of the source")
	target := flag.String("target", "", "brokers of the target")
	sourceCA := flag.String("source-ca", "", "folder with the authority of the source")
	sourceOwn := flag.String("source-certificate", "", "folder with the certificate for the source")
	targetCA := flag.String("target-ca", "", "folder with the authority of the target")
	targetOwn := flag.String("target-certificate", "", "folder with the certificate for the target")
	topic := flag.String("topic", "", "topic of the source")
	name := flag.String("copy", "", "topic of the target")
	codec := flag.String("codec", "none", "compression on the target: none, lz4 or zstd")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	producer := client(*target, *targetCA, *targetOwn,
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[*codec]))
	consumer := client(*source, *sourceCA, *sourceOwn,
		kgo.ConsumeTopics(*topic),
		kgo.ConsumerGroup(*name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.AutoCommitMarks())
	for ctx.Err() == nil {
		fetches := consumer.PollFetches(ctx)
		fetches.EachRecord(func(read *kgo.Record) {
			sent := &kgo.Record{Topic: *name, Partition: read.Partition, Key: read.Key,
				Value: read.Value, Headers: read.Headers, Timestamp: read.Timestamp}
			producer.Produce(ctx, sent, func(_ *kgo.Record, err error) {
				if err != nil && ctx.Err() == nil {
					log.Fatal(err)
				}
				if err == nil {
					consumer.MarkCommitRecords(read)
				}
			})
		})
	}
}
