{{/* The repository of the operator's image; without one the chart cannot be installed, and says what to do. */}}
{{- define "operator.repository" -}}
{{- required (printf "image.repository is empty, and no image of the operator is published. Build it from the repository's root with `docker build -f operator/Dockerfile -t REGISTRY/activity-operator:%s .`, push it, and add --set image.repository=REGISTRY/activity-operator" .Chart.AppVersion) .Values.image.repository }}
{{- end }}

{{/* The repository of the taskbroker's image, which is the worker's. */}}
{{- define "taskbroker.repository" -}}
{{- required (printf "taskbroker.image.repository is empty, and no image is published. Build the worker's from the repository's root with `docker build -f worker_image/Dockerfile -t REGISTRY/activity-worker:%s .`, push it, and add --set taskbroker.image.repository=REGISTRY/activity-worker" .Chart.AppVersion) .Values.taskbroker.image.repository }}
{{- end }}
