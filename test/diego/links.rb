# What the director's renderer of templates has, and that of `bosh create-env` lacks. There are no links.
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
