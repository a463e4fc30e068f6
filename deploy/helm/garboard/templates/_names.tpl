{{- /* The registry that images are not pulled from, because they are loaded. */ -}}
{{- define "garboard.usualRegistry" -}}
registry.garboard.dev
{{- end -}}

{{- /* An image by its name: (list $ "node"). */ -}}
{{- define "garboard.image" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $image := $root.Values.image -}}
{{- $digest := get $image.digests $name -}}
{{ $image.registry }}/garboard/{{ $name }}:{{ $image.tag | default $root.Chart.AppVersion | replace "+" "_" }}{{ with $digest }}@{{ . }}{{ end }}
{{- end -}}

{{- define "garboard.pullPolicy" -}}
{{- $usual := ternary "Never" "IfNotPresent" (eq .Values.image.registry (include "garboard.usualRegistry" .)) -}}
{{ .Values.image.pullPolicy | default $usual }}
{{- end -}}

{{- /* Whether the release has a KubeVirt object. */ -}}
{{- define "garboard.hasSettings" -}}
{{- if or .Values.kubevirt.annotations .Values.kubevirt.spec -}}
yes
{{- end -}}
{{- end -}}
