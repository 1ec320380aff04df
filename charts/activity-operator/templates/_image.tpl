{{/* The repository of the operator's image; without one the chart cannot be installed, and says what to do. */}}
{{- define "operator.repository" -}}
{{- required (printf "image.repository is empty, and no image of the operator is published. Build it from the repository's root with `docker build -f operator/Dockerfile -t REGISTRY/activity-operator:%s .`, push it, and add --set image.repository=REGISTRY/activity-operator" .Chart.AppVersion) .Values.image.repository }}
{{- end }}
