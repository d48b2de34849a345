#!/bin/bash
# Settings are said as to Kafka's own image: KAFKA_NODE_ID is node.id (`__` stands for _, `___` for -);
# KAFKA_HEAP_OPTS and CLUSTER_ID are no settings. Or in a mounted /etc/kafka/server.properties, with
# users in /etc/kafka/scram.txt, one a line: SCRAM-SHA-512=[name=...,password=...].
set -euo pipefail

settings=/var/lib/kafka/server.properties
umask 077
{
  cat /opt/kafka/server.properties
  if [ -e /etc/kafka/server.properties ]; then cat /etc/kafka/server.properties; fi
  while IFS='=' read -r -d '' name value; do
    case $name in KAFKA_HEAP_OPTS) continue ;; KAFKA_*) ;; *) continue ;; esac
    key=${name#KAFKA_} key=${key,,} key=${key//___/-} key=${key//__/%} key=${key//_/.} key=${key//%/_}
    printf '%s=%s\n' "$key" "$value"
  done < <(env -0)
} > "$settings"

# Libraries of codecs are unpacked into the temporary folder.
java=(/opt/java/bin/java -XX:+ExitOnOutOfMemoryError -Djava.io.tmpdir=/var/lib/kafka
  -Dorg.slf4j.simpleLogger.showDateTime=true "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX"
  -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.log.kafka.server=info
  -cp '/opt/kafka/jars/*')

users=()
if [ -e /etc/kafka/scram.txt ]; then
  while IFS= read -r user; do users+=(--add-scram "$user"); done < /etc/kafka/scram.txt
fi
# A broker that starts again keeps its data.
"${java[@]}" -XX:TieredStopAtLevel=1 kafka.tools.StorageTool format --ignore-formatted \
  --cluster-id "${CLUSTER_ID:-aGVhZHJhY2UtdGVzdC0wMA}" --config "$settings" "${users[@]}"

read -ra heap <<< "${KAFKA_HEAP_OPTS:--Xmx256m}"
exec "${java[@]}" "${heap[@]}" kafka.Kafka "$settings"
