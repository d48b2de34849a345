package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	domain     = "cluster.local."
	svcDomain  = ".svc." + domain
	ttlSeconds = 5
	// Maximum size of an answer over UDP without EDNS (RFC 1035). Addresses that do not fit are omitted.
	answerBytes, addressBytes = 512, 16
)

// names resolves Services to IPv4 addresses, as Kubernetes' DNS specification describes: ClusterIPs,
// and the pods of a headless Service with their host names. It resolves no other names, and forwards
// no queries.
type names struct {
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
}

func serveNames(arguments []string) error {
	flags := flag.NewFlagSet("dns", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "of the API server")
	listen := flags.String("listen", "127.0.0.1:53", "UDP address")
	flags.Parse(arguments)
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	known := names{
		factory.Core().V1().Services().Lister(),
		factory.Discovery().V1().EndpointSlices().Lister(),
	}
	ctx := context.Background()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	socket, err := net.ListenPacket("udp4", *listen)
	if err != nil {
		return err
	}
	buffer := make([]byte, answerBytes)
	for {
		length, from, err := socket.ReadFrom(buffer)
		if err != nil {
			return fmt.Errorf("reading from %s: %w", *listen, err)
		}
		if answer, err := known.answer(buffer[:length]); err == nil {
			socket.WriteTo(answer, from)
		}
	}
}

func (n names) answer(query []byte) ([]byte, error) {
	var parser dnsmessage.Parser
	asked, err := parser.Start(query)
	if err != nil {
		return nil, err
	}
	question, err := parser.Question()
	if err != nil {
		return nil, err
	}
	addresses, exists := n.resolve(strings.ToLower(question.Name.String()))
	message := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: asked.ID, Response: true, Authoritative: true,
			RecursionDesired: asked.RecursionDesired, RecursionAvailable: true,
		},
		Questions: []dnsmessage.Question{question},
	}
	if !exists {
		message.RCode = dnsmessage.RCodeNameError
	}
	if question.Type == dnsmessage.TypeA {
		room := (answerBytes - len(query)) / addressBytes
		for _, address := range addresses[:min(room, len(addresses))] {
			message.Answers = append(message.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{
					Name: question.Name, Class: dnsmessage.ClassINET, TTL: ttlSeconds,
				},
				Body: &dnsmessage.AResource{A: address},
			})
		}
	}
	return message.Pack()
}

// resolve has the addresses of a name, and whether there is such a name at all.
func (n names) resolve(name string) (addresses [][4]byte, exists bool) {
	rest, ok := strings.CutSuffix(name, svcDomain)
	if !ok {
		return nil, false
	}
	labelled := strings.Split(rest, ".")
	hostname := ""
	if len(labelled) == 3 {
		hostname, labelled = labelled[0], labelled[1:]
	}
	if len(labelled) != 2 {
		return nil, false
	}
	service, err := n.services.Services(labelled[1]).Get(labelled[0])
	if err != nil {
		return nil, false
	}
	if service.Spec.ClusterIP != core.ClusterIPNone {
		if address, err := netip.ParseAddr(service.Spec.ClusterIP); err == nil && hostname == "" {
			return [][4]byte{address.As4()}, true
		}
		return nil, false
	}
	addresses = n.endpoints(service, hostname)
	return addresses, hostname == "" || len(addresses) > 0
}

// endpoints returns the addresses of the pods of a headless Service, optionally only with a hostname.
func (n names) endpoints(service *core.Service, hostname string) (addresses [][4]byte) {
	of := labels.SelectorFromSet(labels.Set{discovery.LabelServiceName: service.Name})
	slices, _ := n.slices.EndpointSlices(service.Namespace).List(of)
	for _, slice := range slices {
		for _, endpoint := range slice.Endpoints {
			ready := endpoint.Conditions.Ready
			if ready != nil && !*ready && !service.Spec.PublishNotReadyAddresses {
				continue
			}
			if hostname != "" && (endpoint.Hostname == nil || *endpoint.Hostname != hostname) {
				continue
			}
			for _, text := range endpoint.Addresses {
				if address, err := netip.ParseAddr(text); err == nil && address.Is4() {
					addresses = append(addresses, address.As4())
				}
			}
		}
	}
	return addresses
}
