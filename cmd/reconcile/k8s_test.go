package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/rocketkeep/reconcile/internal/config"
	"github.com/rocketkeep/reconcile/reconcile"
)

// manifests are the documents of the file, decoded strictly: a key that Kubernetes
// does not know is an error, as it would be ignored there.
func manifests(t *testing.T) (crons map[string]batchv1.CronJob, maps map[string]corev1.ConfigMap, accounts map[string]bool) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(here, "..", "..", "k8s", "cronjob.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	crons, maps, accounts = map[string]batchv1.CronJob{}, map[string]corev1.ConfigMap{}, map[string]bool{}
	for doc := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var head struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
		}
		if err := yaml.Unmarshal(doc, &head); err != nil {
			t.Fatal(err)
		}
		switch head.APIVersion + " " + head.Kind {
		case "batch/v1 CronJob":
			var c batchv1.CronJob
			if err := yaml.UnmarshalStrict(doc, &c); err != nil {
				t.Fatal(err)
			}
			crons[c.Name] = c
		case "v1 ConfigMap":
			var m corev1.ConfigMap
			if err := yaml.UnmarshalStrict(doc, &m); err != nil {
				t.Fatal(err)
			}
			maps[m.Name] = m
		case "v1 ServiceAccount":
			var a corev1.ServiceAccount
			if err := yaml.UnmarshalStrict(doc, &a); err != nil {
				t.Fatal(err)
			}
			accounts[a.Name] = true
		default:
			t.Errorf("a document of kind %q", head.APIVersion+" "+head.Kind)
		}
	}
	return crons, maps, accounts
}

func TestTheCronJobsAreWhatTheyShouldBe(t *testing.T) {
	t.Parallel()
	crons, maps, accounts := manifests(t)
	if len(crons) != 2 || len(maps) != 1 {
		t.Fatalf("%d cron jobs, %d config maps", len(crons), len(maps))
	}
	for name, suspended := range map[string]bool{"reconcile": false, "reconcile-report": true} {
		c, ok := crons[name]
		if !ok {
			t.Errorf("no cron job %s", name)
			continue
		}
		must := func(what string, ok bool) {
			t.Helper()
			if !ok {
				t.Errorf("%s: %s", name, what)
			}
		}
		s, j := c.Spec, c.Spec.JobTemplate.Spec
		must("a schedule of five fields", len(strings.Fields(s.Schedule)) == 5)
		must("a time zone", s.TimeZone != nil && *s.TimeZone == "Etc/UTC")
		must("concurrencyPolicy Forbid", s.ConcurrencyPolicy == batchv1.ForbidConcurrent)
		must("startingDeadlineSeconds of 300 at least", s.StartingDeadlineSeconds != nil && *s.StartingDeadlineSeconds >= 300)
		must("suspend", (s.Suspend != nil && *s.Suspend) == suspended)
		must("backoffLimit 1", j.BackoffLimit != nil && *j.BackoffLimit == 1)
		must("activeDeadlineSeconds below six hours", j.ActiveDeadlineSeconds != nil && *j.ActiveDeadlineSeconds > 0 && *j.ActiveDeadlineSeconds < 6*3600)
		must("ttlSecondsAfterFinished", j.TTLSecondsAfterFinished != nil && *j.TTLSecondsAfterFinished >= 3600)
		must("podReplacementPolicy Failed, as a podFailurePolicy needs it", j.PodReplacementPolicy != nil && *j.PodReplacementPolicy == batchv1.Failed)
		pod := j.Template.Spec
		must("restartPolicy Never, as a podFailurePolicy needs it", pod.RestartPolicy == corev1.RestartPolicyNever)
		must("time to record what was sent", pod.TerminationGracePeriodSeconds != nil && *pod.TerminationGracePeriodSeconds >= 60)
		must("no token", pod.AutomountServiceAccountToken != nil && !*pod.AutomountServiceAccountToken)
		must("a service account of its own", accounts[pod.ServiceAccountName])
		sc := pod.SecurityContext
		must("runAsNonRoot", sc != nil && sc.RunAsNonRoot != nil && *sc.RunAsNonRoot && sc.RunAsUser != nil && *sc.RunAsUser != 0)
		must("seccomp RuntimeDefault", sc != nil && sc.SeccompProfile != nil && sc.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault)
		if len(pod.Containers) != 1 {
			t.Fatalf("%s: %d containers", name, len(pod.Containers))
		}
		ctr := pod.Containers[0]
		cs := ctr.SecurityContext
		must("readOnlyRootFilesystem", cs != nil && cs.ReadOnlyRootFilesystem != nil && *cs.ReadOnlyRootFilesystem)
		must("no privilege escalation", cs != nil && cs.AllowPrivilegeEscalation != nil && !*cs.AllowPrivilegeEscalation)
		must("drop ALL", cs != nil && cs.Capabilities != nil && slices.Equal(cs.Capabilities.Drop, []corev1.Capability{"ALL"}) && len(cs.Capabilities.Add) == 0)
		must("a memory limit and requests", !ctr.Resources.Limits.Memory().IsZero() && !ctr.Resources.Requests.Memory().IsZero() && !ctr.Resources.Requests.Cpu().IsZero())
		for _, e := range ctr.Env {
			must("secrets by reference: "+e.Name, e.Name == "GOMEMLIMIT" || e.Value == "" && e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && e.ValueFrom.SecretKeyRef.Name != "")
		}
		volumes := map[string]corev1.Volume{}
		for _, v := range pod.Volumes {
			volumes[v.Name] = v
		}
		mounts := map[string]corev1.Volume{}
		for _, m := range ctr.VolumeMounts {
			v, ok := volumes[m.Name]
			must("a volume for "+m.MountPath, ok)
			mounts[m.MountPath] = v
		}
		tmp := mounts["/tmp"].EmptyDir
		must("an emptyDir with a limit at /tmp", tmp != nil && tmp.SizeLimit != nil && !tmp.SizeLimit.IsZero())
		conf := mounts["/etc/reconcile"].ConfigMap
		must("the config map at /etc/reconcile", conf != nil && maps[conf.Name].Data["reconcile.yaml"] != "")
	}
}

// The policy is that of the documented exit codes: a retry helps where the cause can
// pass by itself.
func TestThePodFailurePolicySpeaksOfEveryExitCode(t *testing.T) {
	t.Parallel()
	want := map[reconcile.ExitCode]batchv1.PodFailurePolicyAction{
		reconcile.ExitFailed: batchv1.PodFailurePolicyActionCount, reconcile.ExitCommitFailed: batchv1.PodFailurePolicyActionCount, reconcile.ExitLocked: batchv1.PodFailurePolicyActionCount,
		reconcile.ExitUsage: batchv1.PodFailurePolicyActionFailJob, reconcile.ExitDivergence: batchv1.PodFailurePolicyActionFailJob,
		reconcile.ExitIncomplete: batchv1.PodFailurePolicyActionFailJob, reconcile.ExitRefused: batchv1.PodFailurePolicyActionFailJob,
	}
	crons, _, _ := manifests(t)
	for name, c := range crons {
		p := c.Spec.JobTemplate.Spec.PodFailurePolicy
		if p == nil || len(p.Rules) == 0 {
			t.Errorf("%s: no podFailurePolicy", name)
			continue
		}
		first := p.Rules[0]
		if first.Action != batchv1.PodFailurePolicyActionIgnore || len(first.OnPodConditions) != 1 || first.OnPodConditions[0].Type != corev1.DisruptionTarget || first.OnPodConditions[0].Status != corev1.ConditionTrue {
			t.Errorf("%s: the first rule is not to ignore a disruption: %+v", name, first)
		}
		got := map[reconcile.ExitCode]batchv1.PodFailurePolicyAction{}
		for _, r := range p.Rules[1:] {
			if r.OnExitCodes == nil || r.OnExitCodes.Operator != batchv1.PodFailurePolicyOnExitCodesOpIn || r.OnExitCodes.ContainerName == nil ||
				*r.OnExitCodes.ContainerName != c.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Name || !slices.IsSorted(r.OnExitCodes.Values) {
				t.Errorf("%s: a rule that Kubernetes would not take: %+v", name, r)
				continue
			}
			for _, v := range r.OnExitCodes.Values {
				got[reconcile.ExitCode(v)] = r.Action
			}
		}
		for _, d := range reconcile.ExitDocs() {
			if d.Code == reconcile.ExitClean || d.Code >= reconcile.ExitInterrupted {
				continue // ended well, or ended from outside
			}
			if got[d.Code] != want[d.Code] {
				t.Errorf("%s: exit %d (%s) leads to %q, want %q", name, d.Code, d.Name, got[d.Code], want[d.Code])
			}
			delete(got, d.Code)
		}
		if len(got) > 0 {
			t.Errorf("%s: rules for codes that the program does not end with: %v", name, got)
		}
	}
}

// The words of the jobs are those of the real program, and their configuration is
// valid and asks for nothing that is not built.
func TestTheJobsArgumentsAndConfigurationAreRead(t *testing.T) {
	t.Parallel()
	crons, maps, _ := manifests(t)
	text := maps["reconcile"].Data["reconcile.yaml"]
	env := func(name string) (string, bool) { return "postgres://u@h/d", name == "DATABASE_URL" }
	cfg, err := config.Parse("reconcile.yaml", []byte(text), env)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Repair.Mode != modeFull || cfg.Database.Reveal() == "" || cfg.Reports.URI == "" {
		t.Errorf("mode %s", cfg.Repair.Mode)
	}
	for name, mode := range map[string]string{"reconcile": "", "reconcile-report": modeOff} {
		args := crons[name].Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args
		cmd, rest, err := (&app{}).rootCommand().Find(args)
		if err != nil || cmd.Name() != "run" {
			t.Fatalf("%s: %v, %v", name, args, err)
		}
		if err := cmd.ParseFlags(rest); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for flag, want := range map[string]string{"mode": mode, "config": "/etc/reconcile/reconcile.yaml", "output": "json", "log-format": "json"} {
			if got := cmd.Flag(flag).Value.String(); got != want {
				t.Errorf("%s: --%s is %q, want %q", name, flag, got, want)
			}
		}
		if left := cmd.Flags().Args(); len(left) > 0 {
			t.Errorf("%s: words %v", name, fmt.Sprint(left))
		}
	}
}
