/** The most memory that this process ever had, in bytes. */
export const peakRss = () => process.resourceUsage().maxRSS * 1024;
