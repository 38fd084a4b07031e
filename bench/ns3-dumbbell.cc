// A dumbbell of long TCP flows in ns-3, for bench/ns3.py: prints the packets that left the bottleneck.
//
//     ns3-dumbbell --queue=ns3::CoDelQueueDisc --tcp=ns3::TcpCubic --flows=100 --seconds=100
//
// A flow has an access link of its own at both ends. No packet is larger than 500 bytes on the wire.
#include <iostream>
#include <vector>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace {
// IPv4 20, TCP 20, timestamps 12.
constexpr uint32_t kHeaderBytes = 52;
constexpr uint16_t kPort = 5201;
}  // namespace

int main(int argc, char* argv[]) {
    std::string queue = "ns3::RedQueueDisc";
    std::string tcp = "ns3::TcpLinuxReno";
    std::string rate = "45Mbps";
    std::string limit = "800p";
    uint32_t flows = 100;
    uint32_t packet_bytes = 500;
    double seconds = 100;
    double rtt_ms = 100;
    CommandLine cmd;
    cmd.AddValue("queue", "queue disc of the bottleneck", queue);
    cmd.AddValue("tcp", "congestion control", tcp);
    cmd.AddValue("rate", "rate of the bottleneck", rate);
    cmd.AddValue("limit", "buffer of the bottleneck", limit);
    cmd.AddValue("flows", "long flows", flows);
    cmd.AddValue("seconds", "simulated time", seconds);
    cmd.Parse(argc, argv);

    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue(tcp));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(packet_bytes - kHeaderBytes));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));

    NodeContainer routers(2), senders(flows), receivers(flows);
    InternetStackHelper stack;
    stack.InstallAll();

    PointToPointHelper bottleneck;
    bottleneck.SetDeviceAttribute("DataRate", StringValue(rate));
    bottleneck.SetChannelAttribute("Delay", TimeValue(MilliSeconds(1)));
    // The queue disc holds the packets, not the device.
    bottleneck.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p"));
    NetDeviceContainer middle = bottleneck.Install(routers);
    TrafficControlHelper control;
    control.SetRootQueueDisc(queue, "MaxSize", StringValue(limit));
    QueueDiscContainer discs = control.Install(middle.Get(0));

    PointToPointHelper access;
    access.SetDeviceAttribute("DataRate", StringValue("1Gbps"));
    access.SetChannelAttribute("Delay", TimeValue(MicroSeconds(uint64_t(rtt_ms * 250 - 500))));

    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    addresses.Assign(middle);
    std::vector<Ipv4Address> to(flows);
    for (uint32_t i = 0; i < flows; ++i) {
        addresses.NewNetwork();
        addresses.Assign(access.Install(senders.Get(i), routers.Get(0)));
        addresses.NewNetwork();
        to[i] = addresses.Assign(access.Install(routers.Get(1), receivers.Get(i))).GetAddress(1);
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    Ptr<UniformRandomVariable> start = CreateObject<UniformRandomVariable>();
    for (uint32_t i = 0; i < flows; ++i) {
        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), kPort));
        sink.Install(receivers.Get(i)).Start(Seconds(0));
        BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(to[i], kPort));
        source.SetAttribute("MaxBytes", UintegerValue(0));
        source.Install(senders.Get(i)).Start(Seconds(start->GetValue(0, 1)));
    }
    Simulator::Stop(Seconds(seconds));
    Simulator::Run();
    const QueueDisc::Stats stats = discs.Get(0)->GetStats();
    std::cout << "{\"packets\": " << stats.nTotalSentPackets
              << ", \"dropped\": " << stats.nTotalDroppedPackets << "}" << std::endl;
    Simulator::Destroy();
    return 0;
}
