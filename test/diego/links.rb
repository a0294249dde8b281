# Loaded with RUBYOPT, because the template renderer of `bosh create-env` lacks else_if_link, ipaddr and openssl, which the director's has.
require 'ipaddr'
require 'openssl'

class TemplateEvaluationContext
  # The value of if_p or if_link if the condition was false.
  class ActiveElseBlock
    def else_if_link(_name) = self
  end

  # The value if the condition was true.
  class InactiveElseBlock
    def else_if_link(_name) = self
  end
end
