#include "leaf/client/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "leaf/base/check.h"
#include "leaf/base/duration.h"
#include "leaf/client/answers.h"
#include "leaf/client/tls_stream.h"
#include "leaf/client/wire.h"

namespace leaf::client {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using beast::error_code;
using LoadClock = std::chrono::steady_clock;

// After a connection that failed, so that a daemon that is down is not hammered.
constexpr std::chrono::milliseconds kReconnectPause{100};
constexpr std::chrono::seconds kProgressPeriod{1};

// What all connections share. Only the thread of RunLoad touches it.
struct LoadState {
  const LoadPlan& plan;
  const ServerAddress& address;
  LoadReport report;
  std::optional<Error> first_failure;          // of the load's first answer
  std::optional<LoadClock::time_point> begin;  // when that answer had come, with status 200

  // The first answer decides whether there is anything to measure.
  void Judge(Error error) { first_failure = std::move(error); }
  bool over() const { return first_failure || (begin && LoadClock::now() >= *begin + plan.duration); }
};

// One connection: connects, then asks again and again. Lives until the loop has nothing left to do.
template <typename Stream>
class LoadConnection {
 public:
  // `more`: what the stream is made with besides the loop.
  template <typename... More>
  LoadConnection(asio::io_context& loop, LoadState& state, const More&... more)
      : state_(state), stream_(loop, more...), pause_(loop) {
    request_.method(http::verb::get);
    request_.target(state.plan.target);
    request_.version(11);
    request_.set(http::field::host, state.address.host);
    if (!state.plan.token.empty()) request_.set(http::field::authorization, "Bearer " + state.plan.token);
  }

  void Connect() {
    if (state_.over()) return;
    const auto connected = [this](error_code failed, auto&&...) {
      if (!failed) return Ask();
      if (!state_.begin) {
        auto why = TlsFailureOf(stream_, state_.plan.server);
        return state_.Judge(why ? *std::move(why) : ConnectError(state_.plan.server, failed));
      }
      Lose();
    };
    stream_.expires_after(state_.plan.timeout);
    if constexpr (std::is_same_v<Stream, UnixStream>) {
      stream_.async_connect(std::get<asio::local::stream_protocol::endpoint>(state_.address.endpoints),
                            connected);
    } else {
      stream_.async_connect(std::get<asio::ip::tcp::resolver::results_type>(state_.address.endpoints),
                            connected);
    }
  }

 private:
  void Ask() {
    if (state_.over()) return;
    asked_at_ = LoadClock::now();
    stream_.expires_after(state_.plan.timeout);
    http::async_write(stream_, request_, [this](error_code failed, std::size_t) {
      if (failed) return Lose();
      parser_.emplace();
      http::async_read(stream_, buffer_, *parser_, [this](error_code read_failed, std::size_t) {
        if (read_failed) return Lose();
        Take();
      });
    });
  }

  void Take() {
    const auto latency = std::chrono::duration_cast<std::chrono::microseconds>(LoadClock::now() - asked_at_);
    const auto& response = parser_->get();
    const int status = static_cast<int>(response.result_int());
    if (status == 200) {
      if (!state_.begin) state_.begin = LoadClock::now();
      ++state_.report.answers;
      state_.report.latency.Add(latency);
    } else {
      const Error error = ErrorOf(state_.plan.server, status, response.body());
      if (!state_.begin) return state_.Judge(error);
      const bool known = error.code != ErrorCode::kUnreachable;
      ++state_.report
            .failures[known ? std::string(ErrorCodeName(error.code)) : fmt::format("http_{}", status)];
    }
    if (response.keep_alive()) return Ask();
    Reconnect(std::chrono::milliseconds{0});
  }

  void Lose() {
    // What was cut off because the time is over is no failure.
    if (state_.over()) return;
    if (!state_.begin) {
      if (auto why = TlsFailureOf(stream_, state_.plan.server)) return state_.Judge(*std::move(why));
      return state_.Judge({ErrorCode::kUnavailable,
                           fmt::format("{} gave no answer within {}", state_.plan.server,
                                       FormatDuration(state_.plan.timeout)),
                           ""});
    }
    ++state_.report.failures["connection"];
    Reconnect(kReconnectPause);
  }

  void Reconnect(std::chrono::milliseconds pause) {
    error_code ignored;
    stream_.socket().close(ignored);
    buffer_.clear();
    pause_.expires_after(pause);
    pause_.async_wait([this](error_code) { Connect(); });
  }

  LoadState& state_;
  Stream stream_;
  asio::steady_timer pause_;
  http::request<http::empty_body> request_;
  beast::flat_buffer buffer_;
  std::optional<http::response_parser<http::string_body>> parser_;
  LoadClock::time_point asked_at_;
};

template <typename Stream, typename... More>
void Run(asio::io_context& loop, LoadState& state, const std::function<void(const LoadReport&)>& progress,
         const More&... more) {
  std::vector<std::unique_ptr<LoadConnection<Stream>>> connections;
  const auto open = [&] {
    connections.push_back(std::make_unique<LoadConnection<Stream>>(loop, state, more...));
    connections.back()->Connect();
  };
  open();
  // The first one alone, until it is known whether there is anything to measure.
  while (!state.over() && !state.begin) loop.run_one();
  LoadClock::time_point told = LoadClock::now();
  while (!state.over()) {
    if (connections.size() < state.plan.connections) open();
    loop.run_one_until(std::min(*state.begin + state.plan.duration, told + kProgressPeriod));
    if (LoadClock::now() < told + kProgressPeriod) continue;
    told = LoadClock::now();
    state.report.elapsed = told - *state.begin;
    progress(state.report);
  }
  if (state.begin) state.report.elapsed = LoadClock::now() - *state.begin;
}

}  // namespace

std::size_t LatencyHistogram::BucketOf(std::uint64_t micros) {
  if (micros < kParts) return static_cast<std::size_t>(micros);
  const auto power = static_cast<std::size_t>(std::bit_width(micros)) - std::bit_width(kParts);
  const std::size_t part = static_cast<std::size_t>(micros >> power) - kParts;
  return std::min((power + 1) * kParts + part, kParts * kPowers - 1);
}

std::uint64_t LatencyHistogram::EndOf(std::size_t bucket) {
  if (bucket < kParts) return bucket + 1;
  const std::size_t power = bucket / kParts - 1;
  return (bucket % kParts + kParts + 1) << power;
}

void LatencyHistogram::Add(std::chrono::microseconds latency) {
  ++buckets_[BucketOf(static_cast<std::uint64_t>(std::max<std::int64_t>(latency.count(), 0)))];
  ++count_;
  max_ = std::max(max_, latency);
}

std::chrono::microseconds LatencyHistogram::AtShare(double share) const {
  LEAF_CHECK(share > 0 && share <= 1);
  const auto wanted = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(count_)));
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    seen += buckets_[bucket];
    if (seen >= wanted && seen > 0)
      return std::min(max_, std::chrono::microseconds{static_cast<std::int64_t>(EndOf(bucket) - 1)});
  }
  return max_;
}

std::uint64_t LoadReport::failed() const {
  std::uint64_t sum = 0;
  for (const auto& [code, count] : failures) sum += count;
  return sum;
}

Result<LoadReport> RunLoad(const LoadPlan& plan, const std::function<void(const LoadReport&)>& progress) {
  LEAF_CHECK(plan.connections > 0);
  asio::io_context loop(1);
  LEAF_ASSIGN_OR_RETURN(const ServerAddress address, FindServer(loop, plan.server));
  LoadState state{plan, address, {}, std::nullopt, std::nullopt};
  if (std::holds_alternative<asio::local::stream_protocol::endpoint>(address.endpoints)) {
    Run<UnixStream>(loop, state, progress);
  } else if (address.is_tls) {
    LEAF_ASSIGN_OR_RETURN(const auto context, TlsFrom(plan.tls));
    Run<TlsStream>(loop, state, progress, context, address.name);
  } else {
    Run<beast::tcp_stream>(loop, state, progress);
  }
  if (state.first_failure) return *std::move(state.first_failure);
  return std::move(state.report);
}

}  // namespace leaf::client
