;;; What a person does: starts the preferred agent, asks, and reads the answer.
(require 'agent-shell)
(let* ((done nil)
       (shell (agent-shell--start :config (agent-shell--resolve-preferred-config)
                                  :new-session t :session-strategy 'new :no-focus t)))
  (agent-shell-subscribe-to :shell-buffer shell :event 'turn-complete
                            :on-event (lambda (_) (setq done t)))
  (agent-shell-insert :text "Hello there" :submit t :shell-buffer shell)
  (while (not done) (accept-process-output nil 1))
  (with-current-buffer shell
    (princ (buffer-substring-no-properties (point-min) (point-max)))))
