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

{{- /* Whether the release has the common instancetypes: by its own value, or by its settings, where `enabled` is true if it is left
out, as in KubeVirt. */ -}}
{{- define "garboard.hasCommonInstancetypes" -}}
{{- $configuration := get (.Values.kubevirt.spec | default dict) "configuration" | default dict -}}
{{- $setting := get $configuration "commonInstancetypesDeployment" -}}
{{- $written := kindIs "map" $setting -}}
{{- $enabled := and $written (ne (toString (get ($written | ternary $setting dict) "enabled")) "false") -}}
{{- if and .Values.commonInstancetypes.enabled $written (not $enabled) -}}
{{- fail "commonInstancetypes.enabled is true, and kubevirt.spec.configuration.commonInstancetypesDeployment.enabled is false: set both alike, or one of them" -}}
{{- end -}}
{{- if or .Values.commonInstancetypes.enabled $enabled -}}
yes
{{- end -}}
{{- end -}}
