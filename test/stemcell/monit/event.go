package monit

import (
	"fmt"
	"net/smtp"
	"os"
	"strings"
	"time"
)

// event is a kind of failure. Its value is a bit of "status" in monit's status.
type event int

const (
	nonexistent event = 0x200
	execution   event = 0x1000
	instance    event = 0x10000
	actionDone  event = 0x20000
)

// eventNames are the names of an event and of its recovery in mails. The BOSH agent derives the severity of an alert from them
// (agent/alert/monit_adapter.go).
var eventNames = map[event][2]string{
	nonexistent: {"does not exist", "exists"},
	execution:   {"execution failed", "execution succeeded"},
	instance:    {"monit instance changed", "monit instance changed not"},
	actionDone:  {"action done", "action done"},
}

// recordFailure records a failure of the service, sends a mail if the failure is new, and performs the action: Alert or Restart.
func (d *Daemon) recordFailure(s *service, kind event, description string, action Action) {
	d.mutex.Lock()
	changed := s.failed&kind == 0
	s.failed |= kind
	if kind == execution {
		s.message = description
	}
	d.mutex.Unlock()
	d.log.printf("error", "'%s' %s", s.Name, description)
	if changed {
		d.mail(s.Name, eventNames[kind][0], action.String(), description)
	}
	if action == Restart && s.Mode != "passive" {
		d.restart(s)
	}
}

// recordRecovery clears a failure of the service, and sends a mail if it was recorded.
func (d *Daemon) recordRecovery(s *service, kind event, description string) {
	d.mutex.Lock()
	changed := s.failed&kind != 0
	s.failed &^= kind
	if kind == execution {
		s.message = ""
	}
	d.mutex.Unlock()
	if changed {
		d.log.printf("info", "'%s' %s", s.Name, description)
		d.mail(s.Name, eventNames[kind][1], Alert.String(), description)
	}
}

// mail sends an alert to the recipients in the control file. If this fails, it logs the error, and the
// alert is lost, because the next alert of its kind is sent only after a recovery.
func (d *Daemon) mail(service, event, action, description string) {
	mail := d.config.Mail
	if mail.Server == "" || len(mail.Recipients) == 0 {
		return
	}
	now := time.Now()
	values := strings.NewReplacer("$SERVICE", service, "$EVENT", event, "$ACTION", action, "$DESCRIPTION", description,
		"$DATE", now.Format(time.RFC1123Z), "$HOST", hostname())
	header := fmt.Sprintf("From: %s\r\nTo: %s\r\nSubject: %s\r\nDate: %s\r\nX-Mailer: monit\r\nMIME-Version: 1.0\r\n"+
		"Content-Type: text/plain; charset=\"iso-8859-1\"\r\nContent-Transfer-Encoding: 8bit\r\nMessage-id: <%d.%d@%s>\r\n\r\n",
		values.Replace(mail.From), strings.Join(mail.Recipients, ", "), values.Replace(mail.Subject), now.Format(time.RFC1123Z),
		now.UnixNano(), os.Getpid(), hostname())
	body := strings.ReplaceAll(values.Replace(mail.Message), "\n", "\r\n") + "\r\n"
	if err := smtp.SendMail(mail.Server, nil, values.Replace(mail.From), mail.Recipients, []byte(header+body)); err != nil {
		d.log.printf("error", "Cannot send an alert to %s: %v", mail.Server, err)
	}
}
