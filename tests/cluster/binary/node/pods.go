package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	cri "k8s.io/cri-client/pkg"
)

const removeTimeout = 30 * time.Second

// removePods ends all pods of the container runtime at arguments[0], such as unix:///run/x.sock.
//
// Otherwise they stay registered in the image store, which outlives the cluster.
func removePods(arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("usage: remove-pods ENDPOINT")
	}
	ctx := context.Background()
	runtime, err := cri.NewRemoteRuntimeServiceBuilder().
		WithEndpoint(arguments[0]).
		WithConnectionTimeout(removeTimeout).
		Build(ctx)
	if err != nil {
		return err
	}
	pods, err := runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	failed := make([]error, len(pods))
	var all sync.WaitGroup
	for i, pod := range pods {
		all.Add(1)
		go func() {
			defer all.Done()
			if failed[i] = runtime.StopPodSandbox(ctx, pod.Id); failed[i] == nil {
				failed[i] = runtime.RemovePodSandbox(ctx, pod.Id)
			}
		}()
	}
	all.Wait()
	return errors.Join(failed...)
}
