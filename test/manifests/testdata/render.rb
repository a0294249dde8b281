# Renders a job's templates like a director: ruby render.rb JOB [INSTANCE] <PROPERTIES >FILES
#
#   JOB         directory of the job
#   INSTANCE    spec of the instance, and its links with their instances and properties, in JSON
#   PROPERTIES  properties in the manifest, in JSON
#   FILES       hash from the path to the content of each file, in JSON
#
# Templates get only properties that are in the job's spec, with the defaults in the spec.
require 'erb'
require 'json'
require 'ostruct'
require 'yaml'

# The methods that a template can call: p, if_p with else and else_if_p, link, if_link and spec.
class Context
  Unknown = Class.new(StandardError)

  # The result of if_p. The block of else runs if a property is missing.
  class Else
    def initialize(context, runs)
      @context = context
      @runs = runs
    end

    def else
      yield if @runs
    end

    def else_if_p(*names, &block)
      @runs ? @context.if_p(*names, &block) : self
    end
  end

  # A link with its instances and properties.
  class Link
    attr_reader :instances

    def initialize(link)
      @instances = link.fetch('instances').map { |instance| OpenStruct.new(instance) }
      @properties = link.fetch('properties', {})
    end

    def p(name)
      @properties.fetch(name) { raise Unknown, "Can't find property '#{name}' of the link" }
    end
  end

  attr_reader :spec

  def initialize(spec, properties, instance)
    @spec = OpenStruct.new(instance.fetch('spec', {}))
    @links = instance.fetch('links', {})
    @values = spec.fetch('properties', {}).to_h do |name, definition|
      value = name.split('.').reduce(properties) { |hash, key| hash.is_a?(Hash) ? hash[key] : nil }
      [name, value.nil? ? definition['default'] : value]
    end
  end

  # Fails for properties that are not in the spec, even if the manifest sets them.
  def p(names, *default)
    value = Array(names).map { |name| @values[name] }.compact.first
    return value unless value.nil?
    return default.first unless default.empty?

    raise Unknown, "Can't find property '#{Array(names).join("', or '")}'"
  end

  def if_p(*names)
    values = names.map { |name| @values[name] }
    return Else.new(self, true) if values.any?(&:nil?)

    yield(*values)
    Else.new(self, false)
  end

  def link(name)
    raise Unknown, "Can't find link '#{name}'" unless @links.key?(name)

    Link.new(@links[name])
  end

  def if_link(_name)
    Else.new(self, true)
  end

  def render(path)
    template = ERB.new(File.read(path), trim_mode: '-')
    template.filename = path
    template.result(binding)
  end
end

job = ARGV.fetch(0)
spec = YAML.load_file(File.join(job, 'spec'))
context = Context.new(spec, JSON.parse($stdin.read), JSON.parse(ARGV.fetch(1, '{}')))
puts JSON.generate(spec['templates'].to_h { |source, target| [target, context.render(File.join(job, 'templates', source))] })
