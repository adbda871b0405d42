#pragma once

// Finds a method's request type: in a FileDescriptorSet, or among the bundled target's own types.
// Used when a message is compiled; nothing here is on the request path.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor_database.h>

#include <memory>
#include <string_view>

#include "common/result.h"

namespace spate::agent {

class MethodLookup {
 public:
  // Errors name the method, and the services and methods there are. Only unary methods are found.
  // The descriptor lives as long as the lookup.
  static Result<std::unique_ptr<MethodLookup>> find(std::string_view method,
                                                    std::string_view descriptor_set);

  const google::protobuf::Descriptor* request() const { return request_; }

 private:
  MethodLookup() = default;

  google::protobuf::SimpleDescriptorDatabase files_;
  // For google/protobuf/*.proto, which a set may leave out.
  std::unique_ptr<google::protobuf::DescriptorDatabase> well_known_;
  std::unique_ptr<google::protobuf::DescriptorDatabase> merged_;
  std::unique_ptr<google::protobuf::DescriptorPool> pool_;
  const google::protobuf::Descriptor* request_ = nullptr;
};

}  // namespace spate::agent
