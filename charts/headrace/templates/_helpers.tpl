{{- /* The operator's name. Of 63 characters at most, as the name of a pod's host. */}}
{{- define "headrace.name" -}}
{{- $name := .Values.nameOverride | default "headrace" }}
{{- $default := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- $full := .Values.fullnameOverride | default $default | trunc 54 | trimSuffix "-" | trimSuffix "." }}
{{- printf "%s-operator" $full }}
{{- end }}

{{- /* Name of cluster-wide objects. No namespace contains a dot, so two releases never have the same name. */}}
{{- define "headrace.clusterName" -}}
{{- printf "%s.%s" (include "headrace.name" .) .Release.Namespace }}
{{- end }}

{{- /* Name of roles in the watched namespace: the operator's name if it is the release's namespace, otherwise the cluster-wide name. */}}
{{- define "headrace.roleName" -}}
{{- $own := eq .Release.Namespace (include "headrace.watched" .) }}
{{- include ($own | ternary "headrace.name" "headrace.clusterName") . }}
{{- end }}

{{- /* Names of roles that the operator may bind. No operator's name has one of their suffixes. */}}
{{- define "headrace.driverRole" -}}
{{- include "headrace.fixedRole" (list . "drivers") }}
{{- end }}

{{- define "headrace.chaosRole" -}}
{{- include "headrace.fixedRole" (list . "chaos") }}
{{- end }}

{{- define "headrace.rehearsalRole" -}}
{{- include "headrace.fixedRole" (list . "rehearsal") }}
{{- end }}

{{- define "headrace.executorRole" -}}
{{- include "headrace.fixedRole" (list . "executors") }}
{{- end }}

{{- define "headrace.fixedRole" -}}
{{- with index . 0 }}
{{- $own := eq .Release.Namespace (include "headrace.watched" .) }}
{{- $name := printf "%s-%s" (include "headrace.name" .) (index $ 1) }}
{{- $own | ternary $name (printf "%s.%s" $name .Release.Namespace) }}
{{- end }}
{{- end }}

{{- define "headrace.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "headrace.name" .) }}
{{- end }}

{{- /* Of the operator's pods, and of no others; a Deployment can never change them. */}}
{{- define "headrace.selector" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "headrace.labels" -}}
{{- $ours := include "headrace.selector" . | fromYaml }}
{{- $_ := set $ours "app.kubernetes.io/version" .Chart.AppVersion }}
{{- $_ := set $ours "app.kubernetes.io/managed-by" .Release.Service }}
{{- $_ := set $ours "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") }}
{{- mergeOverwrite dict .Values.commonLabels $ours | toYaml }}
{{- end }}

{{- /* Where flows are reconciled, with commas between them; nothing: everywhere. */}}
{{- define "headrace.watched" -}}
{{- if eq .Values.scope "Namespace" }}
{{- join "," .Values.watchNamespaces | default .Release.Namespace }}
{{- end }}
{{- end }}

{{- /* For people: the one that is watched, unless there are several. */}}
{{- define "headrace.shown" -}}
{{- $watched := include "headrace.watched" . }}
{{- or (empty $watched) (contains "," $watched) | ternary "NAMESPACE" $watched }}
{{- end }}

{{- define "headrace.leaseNamespace" -}}
{{- include "headrace.watched" . | default .Release.Namespace | splitList "," | first }}
{{- end }}

{{- define "headrace.tag" -}}
{{- .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* Name of the image with its registry. checks.yaml requires a repository. */}}
{{- define "headrace.repository" -}}
{{- $registry := .Values.image.registry | default .Values.global.imageRegistry }}
{{- list $registry .Values.image.repository | compact | join "/" }}
{{- end }}

{{- define "headrace.image" -}}
{{- $repository := include "headrace.repository" . }}
{{- with .Values.image.digest }}
{{- printf "%s@%s" $repository . }}
{{- else }}
{{- printf "%s:%s" $repository (include "headrace.tag" .) }}
{{- end }}
{{- end }}

{{- define "headrace.sparkImage" -}}
{{- .Values.spark.image | default (printf "%s-spark:%s" (include "headrace.repository" .) (include "headrace.tag" .)) }}
{{- end }}

{{- /* Settings that Pod Security "restricted" requires, and the additional ones of the values. */}}
{{- define "headrace.podSecurityContext" -}}
{{- $required := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- mergeOverwrite (deepCopy .Values.podSecurityContext) $required | toYaml }}
{{- end }}

{{- define "headrace.securityContext" -}}
{{- $required := dict "allowPrivilegeEscalation" false "capabilities" (dict "drop" (list "ALL")) "readOnlyRootFilesystem" true }}
{{- mergeOverwrite (deepCopy .Values.securityContext) $required | toYaml }}
{{- end }}

{{- /* Where an alert's page is, if the place of the runbook is set: of prometheusRule and the alert. */}}
{{- define "headrace.runbook" -}}
{{- with (index . 0).runbookUrl }}
      runbook_url: {{ printf "%s#%s" . (index $ 1 | lower) | quote }}
{{- end }}
{{- end }}

{{- /* The command line of the operator, which helm test checks with. */}}
{{- define "headrace.args" -}}
{{- $watched := include "headrace.watched" . }}
{{- range $watched | splitList "," }}
- {{ empty . | ternary "--all-namespaces" (printf "--namespace=%s" .) }}
{{- end }}
{{- with .Values.selector }}
- {{ printf "--selector=%s" . | quote }}
{{- end }}
- --lease-namespace={{ include "headrace.leaseNamespace" . }}
- --lease={{ include "headrace.name" . }}
- --identity=$(POD_NAME)
- --pod-ip=$(POD_IP)
- --port=8080
- --driver-image={{ .Values.driver.image | default (include "headrace.image" .) }}
- --spark-image={{ include "headrace.sparkImage" . }}
- --max-concurrent-rollouts={{ .Values.driver.maxConcurrentRollouts }}
{{- $drivers := include "headrace.given" (list . (pick .Values.driver "resources" "env" "podTemplate" "pullPolicy")) }}
{{- if ne $drivers "{}" }}
- {{ printf "--driver-defaults=%s" $drivers | quote }}
{{- end }}
{{- $spark := include "headrace.given" (list . (pick .Values.spark "driver" "executor" "podTemplate" "pullPolicy")) }}
{{- if and .Values.mirrorTests.enabled (ne $spark "{}") }}
- {{ printf "--spark-defaults=%s" $spark | quote }}
{{- end }}
- --driver-role={{ include "headrace.driverRole" . }}
{{- if .Values.driver.networkPolicy }}
- --network-policy
{{- end }}
{{- if .Values.mirrorTests.enabled }}
- --executor-role={{ include "headrace.executorRole" . }}
{{- else }}
- --no-mirror-tests
{{- end }}
{{- if .Values.mirrorTests.networkPolicy }}
- --test-network-policy
{{- end }}
{{- if not .Values.spark.allowCustomImage }}
- --no-custom-spark-image
{{- end }}
{{- if ne $watched .Release.Namespace }}
- --refuse-tests-in={{ .Release.Namespace }}
{{- end }}
{{- if .Values.chaos.enabled }}
- --chaos-role={{ include "headrace.chaosRole" . }}
{{- end }}
{{- if .Values.rehearsal.enabled }}
- --rehearsal-role={{ include "headrace.rehearsalRole" . }}
{{- end }}
{{- end }}

{{- /* Values that are not empty, as JSON, with the names that they have in a flow and a mirror test. */}}
{{- define "headrace.given" -}}
{{- $given := dict }}
{{- $pull := (index . 0).Values.global.imagePullSecrets }}
{{- $values := deepCopy (index . 1) }}
{{- if and $pull (not $values.podTemplate.imagePullSecrets) }}
{{- $_ := set $values.podTemplate "imagePullSecrets" $pull }}
{{- end }}
{{- range $name, $value := $values }}
{{- if $value }}
{{- $_ := set $given ($name | replace "pullPolicy" "imagePullPolicy") $value }}
{{- end }}
{{- end }}
{{- toJson $given }}
{{- end }}

{{- /* Of both PodMonitors. */}}
{{- define "headrace.scraped" -}}
{{- with .Values.podMonitor -}}
interval: {{ .interval }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
