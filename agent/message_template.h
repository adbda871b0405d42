#pragma once

// A request message, compiled once from the plan's JSON and a protobuf type, then rendered per
// request without parsing anything. Templates in string values:
//
//   {{random A B}}   a fresh whole number in [A, B], both included
//   {{seq}}          number of this request on its worker's agent, from 0
//   {{agent}}        the agent's name
//   {{connection}}   cluster-wide number of the connection, from 0
//   {{text N}}       N characters of random words, as compressible as prose; N up to 1,000,000
//
// A string that is one template and nothing else may stand for a number field; inside text it is
// spelled in decimal. Beyond the protobuf JSON mapping two short forms are read: a value where a
// message is expected fills the message's only field of that kind (number or string), and a single
// value where a repeated field is expected is a list of one.
//
// Immutable after compile; render() may be called from any thread, with a Context of the caller's
// own.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/random.h"
#include "common/result.h"

namespace spate::agent {

class MessageTemplate {
 public:
  struct Context {
    Random& random;
    std::uint64_t seq = 0;
    std::uint64_t connection = 0;
    std::string_view agent;
  };

  // `method` is "package.Service/Method"; `descriptor_set` a serialized FileDescriptorSet, empty
  // for the bundled target's own. Errors name the method, the JSON path, or the services there are.
  static Result<std::shared_ptr<const MessageTemplate>> compile(std::string_view method,
                                                                std::string_view descriptor_set,
                                                                std::string_view message_json);
  ~MessageTemplate();

  // Appends the serialized message to `out`.
  void render(const Context& context, std::string& out) const;
  // True if every rendering is the same.
  bool is_constant() const;

 private:
  struct Program;
  explicit MessageTemplate(std::unique_ptr<Program> program);
  std::unique_ptr<const Program> program_;
};

}  // namespace spate::agent
