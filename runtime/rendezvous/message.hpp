#pragma once
// Messages between the ranks of a rendezvous, and their bytes on the wire:
//   bytes 0-3   length of the rest, little-endian
//   byte  4     kind
//   bytes 5-8   a number, little-endian two's complement: a rank, or the size of a world
//   bytes 9-10  length of the key, little-endian
//   then        key, value
// Input is bounded before it is kept: a length is checked as soon as its four bytes are there.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "plan/text/errors.hpp"

namespace mgplan::runtime {

enum class MessageKind : std::uint8_t {
    hello = 1,      ///< rank; key: the protocol and the size of the world, value: the secret
    welcome = 2,    ///< everybody has come
    refusal = 3,    ///< value: why; the connection ends
    set = 4,        ///< key, value
    get = 5,        ///< key; answered by `value` once somebody has set it
    value = 6,      ///< key, value
    heartbeat = 7,  ///< value: where the rank is
    abort = 8,      ///< value: why; to the server, and from it to everybody
    leave = 9,      ///< the rank is done; the server answers everybody with the same when all are
};

/// One message between a rank and the rendezvous server; its kind gives the meaning of the fields.
struct RendezvousMessage {
    MessageKind kind{};
    std::int32_t number = 0;
    std::string key;
    std::string value;
    bool operator==(const RendezvousMessage&) const = default;
};

inline constexpr std::size_t kMostKeyBytes = 256;
inline constexpr std::size_t kMostValueBytes = 64 * 1024;
/// The most bytes of a message after its length.
inline constexpr std::size_t kMostMessageBytes = 7 + kMostKeyBytes + kMostValueBytes;
/// The same of a peer that has not yet sent the secret.
inline constexpr std::size_t kMostHelloBytes = 1024;

/// Bytes that are no message.
class MessageError : public RunError {
public:
    using RunError::RunError;
};

/// Asserts that key and value are within their bounds.
[[nodiscard]] std::string to_wire(const RendezvousMessage& message);

/// Turns a stream of bytes into messages. Holds no more than one message and what was fed with its end.
class MessageReader {
public:
    /// Sets the most bytes of a message after its length, from here on.
    void limit(std::size_t bytes) { most_ = bytes; }
    void feed(std::string_view bytes) { bytes_.append(bytes); }
    /// The next whole message; nothing while it is incomplete. Throws MessageError for an invalid length, kind or key.
    [[nodiscard]] std::optional<RendezvousMessage> next();
    [[nodiscard]] std::size_t held() const { return bytes_.size(); }

private:
    std::size_t most_ = kMostMessageBytes;
    std::string bytes_;
};

/// Returns true if both are equal, in a time that depends on the length of `given` alone.
[[nodiscard]] bool equal_secrets(std::string_view given, std::string_view expected);

}  // namespace mgplan::runtime
