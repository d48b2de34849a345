#!/bin/bash
# Entry point that Spark's Kubernetes back end expects in an executor's image. PySpark has none.
# Source of the variables: resource-managers/kubernetes/docker/.../entrypoint.sh of Spark 4.2.
set -euo pipefail

[ "${1:-}" = executor ] || exec "$@"

options=()
for name in $(compgen -v SPARK_JAVA_OPT_ | sort -t _ -k 4 -n); do
  options+=("${!name}")
done
exec "$JAVA_HOME/bin/java" "${options[@]}" \
  "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "$SPARK_HOME/conf:${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_HOME/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" \
  --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" \
  --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
