package report

import (
	"fmt"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// said is what the store answered, in brackets; empty when that is not known.
func (s subject) said() string {
	if s.answer == "" {
		return ""
	}
	return " (" + s.answer + ")"
}

// answerOf is a store's answer as a person reads it; empty when there was none.
func answerOf(f *reconcile.Finding) string {
	text := ""
	if f.HTTPStatus != nil {
		text = fmt.Sprintf("HTTP %d", *f.HTTPStatus)
	}
	if f.ErrorCode != nil {
		if text != "" {
			text += " "
		}
		text += printable(*f.ErrorCode)
	}
	return text
}

// forNoTalk is for stores that were not asked, or that did not take the question: what is
// wrong is the address, the keys or the question, and waiting mends none of them.
func (a adviser) forNoTalk(s subject) advice {
	s3 := true
	if loc, err := objstore.Parse(s.uri); err == nil {
		s3 = loc.Scheme == "s3"
	}
	again := a.check(s)
	switch {
	case !s3:
		return advice{text: "The place gave no answer that could be used" + s.said() + "; the log says what came instead. Look at its health, then check again:", commands: again}
	case s.reason == reconcile.ReasonUnreachable:
		return advice{text: "No connection to the store came about: nobody listens at that address, or its name is not known. Compare the endpoint (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or s3.endpoint of the configuration) with that of the writers; the log names the address. Then check again:", commands: again}
	case s.reason == reconcile.ReasonNoCredentials:
		return advice{text: "There is nobody to sign requests as. Credentials are looked for in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, in the shared files (~/.aws/credentials, ~/.aws/config; AWS_PROFILE or s3.profile chooses), in AWS_WEB_IDENTITY_TOKEN_FILE, and at the container's or instance's metadata service. Provide one of them, then check again:", commands: again}
	case s.reason == reconcile.ReasonBadCredentials:
		return advice{text: "The store does not take the keys" + s.said() + ": the key id is not known there, the secret is wrong, the session has expired, or this host's clock is off. No right is missing. Renew or correct the credentials, or the endpoint if they are of another store, then check again:", commands: again}
	case s.reason == reconcile.ReasonBadRequest:
		return advice{text: "The store refused the question itself" + s.said() + ": asking again changes nothing. Compare the bucket's name, the region and the endpoint with those of the writers; the log holds the store's own words. Then check again:", commands: again}
	}
	return advice{text: "The store gave no answer that could be used" + s.said() + "; the log says what came instead. Compare the endpoint (http or https?) and look at the store's health, then check this target alone:",
		commands: a.check(s, append(a.command.later(), a.command.fewer(32))...)}
}
