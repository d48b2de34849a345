# Sourced by spark-submit: Hadoop's login ends with a NullPointerException where its user has no name.
if ! id -un >/dev/null 2>&1; then
  echo "headrace: user $(id -u) has no name in /etc/passwd, which Spark needs: run the pod as the" \
    "user of its image, or by a runtime that adds a name, as CRI-O does" >&2
  exit 1
fi
