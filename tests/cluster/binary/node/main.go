// Program node contains all parts of a node, apart from the control plane (../main.go).
// Its first argument names the part: node kubelet --help.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var parts = map[string]func(){
	"dns":            func() { check(serveNames(os.Args[1:])) },
	"kube-proxy":     func() { run(proxy.NewProxyCommand()) },
	"kube-scheduler": func() { run(scheduler.NewSchedulerCommand()) },
	"kubelet":        func() { run(kubelet.NewKubeletCommand(context.Background())) },
	"relay":          func() { check(relay(os.Args[1:])) },
	"remove-pods":    func() { check(removePods(os.Args[1:])) },
}

func main() {
	if len(os.Args) > 1 {
		if part, ok := parts[os.Args[1]]; ok {
			os.Args = os.Args[1:]
			part()
			return
		}
	}
	names := slices.Sorted(maps.Keys(parts))
	fmt.Fprintf(os.Stderr, "usage: node %s [flags]\n", strings.Join(names, "|"))
	os.Exit(2)
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

func check(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
		os.Exit(1)
	}
}
