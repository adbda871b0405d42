#include "target-server/stats_service.h"

#include <grpcpp/grpcpp.h>

#include "common/version.h"
#include "proto/target.grpc.pb.h"
#include "rpc/grpc_settings.h"
#include "target-server/process_info.h"

namespace spate::target_server {

namespace v1 = ::spate::target::v1;

class StatsService::Impl final : public v1::Stats::Service {
 public:
  explicit Impl(const Sources& sources)
      : sources_(sources), boot_id_(random_id()), allocator_(loaded_allocator()) {}

  grpc::Status Get(grpc::ServerContext* context, const v1::StatsRequest* request,
                   v1::StatsReply* reply) override {
    if (const auto allowed = rpc::authorize(*context, {rpc::Role::controller, rpc::Role::op});
        !allowed) {
      return {grpc::StatusCode::PERMISSION_DENIED, allowed.error().message};
    }
    reply->set_boot_id(boot_id_);
    reply->set_version(kVersion);
    reply->set_allocator(allocator_);
    fill_counts(request->run(), *reply);
    const ProcessMemory memory = process_memory();
    reply->set_address_space_bytes(memory.address_space_bytes);
    reply->set_rss_bytes(memory.rss_bytes);
    reply->set_cpu_ns(process_cpu_ns());
    reply->set_threads(sources_.pool.threads());
    reply->set_open_connections(open_connections(sources_.flood_ports));
    reply->set_uptime_ns((BootClock::now() - sources_.started).count());
    return grpc::Status::OK;
  }

 private:
  void fill_counts(const std::string& run, v1::StatsReply& reply) const {
    const Counts::Values total = sources_.counters.total().read();
    reply.set_received(total.received);
    reply.set_completed(total.completed);
    reply.set_refused(total.refused);
    if (run.empty()) return;
    for (const Counters::Entry& entry : sources_.counters.entries(run)) {
      v1::AgentCount* agent = reply.add_agents();
      agent->set_run(entry.run);
      agent->set_agent(entry.agent);
      agent->set_incarnation(entry.incarnation);
      agent->set_received(entry.counts.received);
      agent->set_completed(entry.counts.completed);
      agent->set_refused(entry.counts.refused);
    }
  }

  const Sources sources_;
  const std::string boot_id_;
  const std::string allocator_;
};

StatsService::StatsService(const Sources& sources) : impl_(std::make_unique<Impl>(sources)) {}
StatsService::~StatsService() = default;
grpc::Service& StatsService::service() { return *impl_; }

}  // namespace spate::target_server
