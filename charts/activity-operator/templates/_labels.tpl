{{/* What selects the operator's pods; never changes, because a Deployment's selector cannot. */}}
{{- define "operator.selector" -}}
app.kubernetes.io/name: activity-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "operator.labels" -}}
{{ include "operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: activitypool
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* What selects the taskbroker's pods. */}}
{{- define "taskbroker.selector" -}}
app.kubernetes.io/name: activity-taskbroker
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "taskbroker.labels" -}}
{{ include "taskbroker.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: activitypool
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
